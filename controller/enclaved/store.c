#include "controller/enclaved/store.h"

#include "base/enctime.h"
#include "base/enc.h"

void enc_enclave_done (struct enc_enclave *e)
{
	enc_cols_done (enc_enclave_cols, e);
}

void enc_node_done (struct enc_node *n)
{
	enc_cols_done (enc_node_cols, n);
}

void enc_document_done (struct enc_document *d)
{
	enc_cols_done (enc_document_cols, d);
}

void enc_observed_done (struct enc_observed *o)
{
	enc_cols_done (enc_observed_cols, o);
}

void enc_operation_done (struct enc_operation *o)
{
	enc_cols_done (enc_operation_cols, o);
}

void enc_nodes_done (struct enc_nodes *l)
{
	enc_cols_free (enc_node_cols, sizeof *l->v, l->v, l->n);
	*l = (struct enc_nodes){ 0 };
}

void enc_member_rows_done (struct enc_member_rows *l)
{
	enc_cols_free (enc_member_cols, sizeof *l->v, l->v, l->n);
	*l = (struct enc_member_rows){ 0 };
}

void enc_volumes_done (struct enc_volumes *l)
{
	enc_cols_free (enc_volume_cols, sizeof *l->v, l->v, l->n);
	*l = (struct enc_volumes){ 0 };
}

void enc_enclaves_done (struct enc_enclaves *l)
{
	enc_cols_free (enc_enclave_cols, sizeof *l->v, l->v, l->n);
	*l = (struct enc_enclaves){ 0 };
}

/* ---- enclaves ---- */

int enc_enclave_load (struct enc_db *db, const char *id, struct enc_enclave *ret, struct enc_error *err)
{
	return enc_db_get (db, "enclaves", enc_enclave_cols, ret, err, "WHERE id=?", "s", id);
}

int enc_enclave_named (struct enc_db *db, const char *name, struct enc_enclave *ret, struct enc_error *err)
{
	return enc_db_get (db, "enclaves", enc_enclave_cols, ret, err, "WHERE name=? AND state!='closed'", "s", name);
}

int enc_enclave_latest (struct enc_db *db, const char *name, struct enc_enclave *ret, struct enc_error *err)
{
	return enc_db_get (db, "enclaves", enc_enclave_cols, ret, err, "WHERE name=? ORDER BY state='closed', created_at DESC, rowid DESC", "s",
			   name);
}

int enc_enclave_put (struct enc_db *db, const struct enc_enclave *e, struct enc_error *err)
{
	return enc_db_put (db, "enclaves", enc_enclave_cols, e, err);
}

int enc_enclave_state (struct enc_db *db, const char *id, const char *state, const char *step, struct enc_error *err)
{
	return enc_db_exec (db, err, "UPDATE enclaves SET state=?, step=? WHERE id=?", "sss", state, step ? step : "", id);
}

void enc_enclave_waiting (struct enc_db *db, const char *id, const char *what, int64_t until, const char *next)
{
	/* Only for people; it must not fail the step that waits. */
	if (enc_db_exec (db, NULL, "UPDATE enclaves SET wait_for=?, wait_until=?, wait_next=? WHERE id=?", "siss", what, until, next, id) < 0)
		return;
}

int enc_enclave_list (struct enc_db *db, struct enc_enclaves *ret, struct enc_error *err, const char *where)
{
	void *v = NULL;
	int rc = enc_db_all (db, "enclaves", enc_enclave_cols, sizeof *ret->v, &v, &ret->n, err, where, "");

	ret->v = v;
	return rc;
}

int enc_slot_take (struct enc_db *db, uint32_t *ret, struct enc_error *err)
{
	for (int64_t slot = 1; slot <= 250; slot++) {
		if (enc_db_int (db, 1, "SELECT count(*) FROM enclaves WHERE slot=? AND state!='closed'", "i", slot) == 0) {
			*ret = (uint32_t) slot;
			return 0;
		}
	}
	return enc_fail (err, ENC_EBUSY, "all 250 enclave networks are in use");
}

/* ---- nodes ---- */

int enc_node_load (struct enc_db *db, const char *name, struct enc_node *ret, struct enc_error *err)
{
	int rc = enc_db_get (db, "nodes", enc_node_cols, ret, err, "WHERE name=?", "s", name);

	if (rc == -ENC_ENOTFOUND)
		return enc_error_object (err, enc_fail (err, ENC_ENOTFOUND, "there is no node %s", name), "%s", name);
	return rc;
}

int enc_node_put (struct enc_db *db, const struct enc_node *n, struct enc_error *err)
{
	return enc_db_put (db, "nodes", enc_node_cols, n, err);
}

int enc_nodes_of (struct enc_db *db, const char *enclave_id, uint8_t roles, struct enc_nodes *ret, struct enc_error *err)
{
	void *v = NULL;
	int rc = enc_db_all (db, "nodes", enc_node_cols, sizeof *ret->v, &v, &ret->n, err,
			     "WHERE enclave_id=? AND (role & ?)!=0 AND pool!=4 ORDER BY overlay", "si", enclave_id, (int64_t) roles);

	ret->v = v;
	return rc;
}

int enc_nodes_declared (struct enc_db *db, const char *declared, struct enc_nodes *ret, struct enc_error *err)
{
	void *v = NULL;
	int rc = enc_db_all (db, "nodes", enc_node_cols, sizeof *ret->v, &v, &ret->n, err, "WHERE declared=? ORDER BY name", "s", declared);

	ret->v = v;
	return rc;
}

int enc_nodes_all (struct enc_db *db, struct enc_nodes *ret, struct enc_error *err)
{
	void *v = NULL;
	int rc = enc_db_all (db, "nodes", enc_node_cols, sizeof *ret->v, &v, &ret->n, err, "ORDER BY name", "");

	ret->v = v;
	return rc;
}

int enc_document_load (struct enc_db *db, const char *node, struct enc_document *ret, struct enc_error *err)
{
	int rc = enc_db_get (db, "documents", enc_document_cols, ret, err, "WHERE node=?", "s", node);

	if (rc == -ENC_ENOTFOUND) {
		enc_error_clear (err);
		return enc_str_copy (ret->node, sizeof ret->node, node, err);
	}
	return rc;
}

int enc_document_put (struct enc_db *db, const struct enc_document *d, struct enc_error *err)
{
	return enc_db_put (db, "documents", enc_document_cols, d, err);
}

int enc_observed_load (struct enc_db *db, const char *node, struct enc_observed *ret, struct enc_error *err)
{
	int rc = enc_db_get (db, "observed", enc_observed_cols, ret, err, "WHERE node=?", "s", node);

	if (rc == -ENC_ENOTFOUND) {
		enc_error_clear (err);
		return enc_str_copy (ret->node, sizeof ret->node, node, err);
	}
	return rc;
}

int enc_observed_put (struct enc_db *db, const struct enc_observed *o, struct enc_error *err)
{
	return enc_db_put (db, "observed", enc_observed_cols, o, err);
}

/* ---- members and volumes ---- */

int enc_members_of (struct enc_db *db, const char *enclave_id, struct enc_member_rows *ret, struct enc_error *err)
{
	void *v = NULL;
	int rc = enc_db_all (db, "members", enc_member_cols, sizeof *ret->v, &v, &ret->n, err, "WHERE enclave_id=? ORDER BY user", "s",
			     enclave_id);

	ret->v = v;
	return rc;
}

int enc_member_put (struct enc_db *db, const struct enc_member_row *m, struct enc_error *err)
{
	return enc_db_put (db, "members", enc_member_cols, m, err);
}

int enc_volumes_of (struct enc_db *db, const char *enclave_id, struct enc_volumes *ret, struct enc_error *err)
{
	void *v = NULL;
	int rc = enc_db_all (db, "volumes", enc_volume_cols, sizeof *ret->v, &v, &ret->n, err, "WHERE enclave_id=? ORDER BY kind, name", "s",
			     enclave_id);

	ret->v = v;
	return rc;
}

int enc_volume_put (struct enc_db *db, const struct enc_volume *v, struct enc_error *err)
{
	return enc_db_put (db, "volumes", enc_volume_cols, v, err);
}

int enc_volume_locked (struct enc_db *db, const char *name, const char *owner, struct enc_volume *ret, struct enc_error *err)
{
	return enc_db_get (db, "volumes", enc_volume_cols, ret, err, "WHERE name=? AND owner=? AND state='locked'", "ss", name, owner);
}

/* ---- tokens ---- */

int enc_token_put (struct enc_db *db, const char *hash, const char *node, const char *pool, int64_t expires_at, struct enc_error *err)
{
	return enc_db_exec (db, err, "INSERT INTO tokens (hash, node, pool, expires_at, used_at) VALUES (?,?,?,?,0)", "sssi", hash, node, pool,
			    expires_at);
}

int enc_token_use (struct enc_db *db, const char *hash, const char *node, int64_t now, char *ret_pool, struct enc_error *err)
{
	enc_auto (enc_rows) struct enc_rows *r = NULL;
	int rc;

	/* One statement decides and uses up, so that two requests cannot both win. */
	rc = enc_db_query (db, &r, err,
			   "UPDATE tokens SET used_at=? WHERE hash=? AND node=? AND used_at=0 AND expires_at>? RETURNING pool", "issi", now,
			   hash, node, now);
	if (rc < 0)
		return rc;
	if ((rc = enc_rows_next (r, err)) < 0)
		return rc;
	if (rc == 0)
		return enc_error_next (err, enc_fail (err, ENC_EDENIED, "the token is not valid"), "enclavectl node enroll NODE makes a new one");
	return enc_str_copy (ret_pool, 12, enc_rows_text (r, 0), err);
}
