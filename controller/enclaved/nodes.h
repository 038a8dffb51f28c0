/* Node documents: change one area on some nodes, raise the generation, wait until each node reports that it is so.
 *
 * The stored document is the only memory of what a node shall be: a change loads it, edits it and puts it back. A change that loosens
 * brings keyd's grant with it; one that tightens goes out at once, whoever is down. */
#ifndef ENC_ENCLAVED_NODES_H
#define ENC_ENCLAVED_NODES_H

#include "controller/enclaved/run.h"
#include "node-agent/proto/document.h"

typedef void (*enc_edit_fn) (struct enc_doc *doc, const struct enc_node *node, void *arg);

/* A document that leaves something open needs a grant also when it takes something away: nodes obey whole documents. */
enum enc_grant_need {
	ENC_GRANT_NONE,    /* only tightens: goes out at once */
	ENC_GRANT_MUST,    /* it loosens: no grant, no change */
	ENC_GRANT_IF_CAN,  /* on the way down: without log, key service or lease the node goes to the airlock at once */
};

struct enc_change {
	enc_edit_fn edit;
	void *arg;
	enum enc_grant_need grant;
	const char *what;  /* for people: "fence airlock" */
};

/* Issue and wait. On failure run->failed names the nodes. An empty list is done at once. */
ENC_MUST_USE int enc_nodes_change (struct enc_run *run, const struct enc_nodes *nodes, const struct enc_change *change, struct enc_error *err);
/* Only issue, without waiting for the nodes. */
ENC_MUST_USE int enc_nodes_issue (struct enc_run *run, const struct enc_nodes *nodes, const struct enc_change *change, struct enc_error *err);
/* Wait until all have reached the document they were given. */
ENC_MUST_USE int enc_nodes_await (struct enc_run *run, const struct enc_nodes *nodes, const char *what, struct enc_error *err);
/* Are they there now? ENC_EFAILED names the first that is not. */
ENC_MUST_USE int enc_nodes_hold (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err);

/* The document as stored, decoded; heap. A node without one gets a fresh document of its declared pool. */
ENC_MUST_USE int enc_doc_of (struct enc_ctl *c, const struct enc_node *node, struct enc_doc **ret, struct enc_error *err);
/* Store a tightening change without grant and wake the agent; from anywhere, waits for nothing. */
ENC_MUST_USE int enc_node_tighten (struct enc_ctl *c, const struct enc_node *node, enc_edit_fn edit, void *arg, struct enc_error *err);

/* 1: the report says that the node is what the document asks for. 0: not yet. Negative: it failed; the text says in which area. */
ENC_MUST_USE int enc_doc_reached (const struct enc_doc *doc, const char *digest, const struct enc_observed *seen, struct enc_error *err);

/* Fenced, keys dropped, out of every pool; waits for a person. Never fails for want of anything but the store. */
ENC_MUST_USE int enc_node_quarantine (struct enc_ctl *c, const char *name, const char *step, const char *why, struct enc_error *err);

/* Measure and compare with the baseline: a fresh challenge from keyd, the node's answer, keyd's verdict. A node that differs is put
 * into quarantine, the row named: ENC_EINTEGRITY. */
ENC_MUST_USE int enc_nodes_measure (struct enc_run *run, const struct enc_nodes *nodes, struct enc_error *err);
/* Remove all residue (a fresh clean id), then measure. `level` is enum enc_clean_level. */
ENC_MUST_USE int enc_nodes_clean (struct enc_run *run, const struct enc_nodes *nodes, uint8_t level, struct enc_error *err);

#endif
