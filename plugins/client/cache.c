#include "plugins/client/client.h"

#include <string.h>
#include <sys/stat.h>

#include "base/enctime.h"

#include "base/enc.h"

static int64_t ns_of (struct timespec t)
{
	return (int64_t)t.tv_sec * ENC_NS_S + t.tv_nsec;
}

static bool same_file (const struct enc_client_cache *c, const struct stat *st)
{
	return c->filled && c->file.dev == st->st_dev && c->file.ino == st->st_ino && c->file.size == st->st_size &&
	       c->file.mtime == ns_of (st->st_mtim) && c->file.ctime == ns_of (st->st_ctim);
}

void enc_client_cache_done (struct enc_client_cache *cache)
{
	enc_members_done (&cache->view.members);
	memset (cache, 0, sizeof *cache);
}

/* Looked at before it is read: a file that is replaced in between is then read again at the next question. */
static int refresh_members (const struct enc_client_conf *conf, struct enc_client_cache *cache, struct enc_error *err)
{
	struct enc_members fresh = { 0 };
	struct stat st;
	int rc;

	if (stat (conf->members, &st) < 0)
		return enc_fail (err, ENC_EUNAVAIL, "there is no member document on this node");
	if (same_file (cache, &st))
		return 0;
	if ((rc = enc_client_members (conf, &fresh, err)) < 0)
		return rc;
	enc_members_done (&cache->view.members);
	cache->view.members = fresh;
	cache->filled = true;
	cache->file.dev = st.st_dev;
	cache->file.ino = st.st_ino;
	cache->file.size = st.st_size;
	cache->file.mtime = ns_of (st.st_mtim);
	cache->file.ctime = ns_of (st.st_ctim);
	return 0;
}

int enc_client_cached (const struct enc_client_conf *conf, struct enc_client_cache *cache, struct enc_error *err)
{
	int rc = refresh_members (conf, cache, err);

	if (rc == 0 && (cache->facts_until == 0 || enc_passed (cache->facts_until))) {
		rc = enc_client_facts (conf, getuid (), &cache->view.facts, err);
		cache->facts_until = rc == 0 ? enc_deadline_ms (ENC_CACHE_FACTS_MS) : 0;
	}
	return rc == 0 ? enc_client_fits (&cache->view.members, &cache->view.facts, (uint64_t)enc_now_s (), err) : rc;
}
