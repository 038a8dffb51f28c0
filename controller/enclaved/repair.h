/* Nodes of an open enclave that are no longer what they were ordered to be: started again (fenced and without keys, invariant 9), silent,
 * or without the fence, keys or services of their stay. Each look notes it with the node, where `show`, `list` and `doctor` find it.
 *
 * A node that answers is led through the rows again, from isolate to open, alone (run.h, scope). One that stays silent, or cannot be put
 * right within the site's node_lost, goes to quarantine; the enclave goes on with the others. While log or key service are away nothing
 * is held against a node. */
#ifndef ENC_ENCLAVED_REPAIR_H
#define ENC_ENCLAVED_REPAIR_H

#include "controller/enclaved/store.h"

struct enc_ctl;

/* Look at the nodes of one open enclave that nothing else moves; from a fiber. May start a run. */
void enc_repair_look (struct enc_ctl *c, const struct enc_enclave *e);
/* Forget the trouble of nodes that no open enclave has any more. */
void enc_repair_forget (struct enc_ctl *c);
/* {"for","until","next"} of the enclave's first node in trouble or in quarantine, NULL if there is none. */
struct enc_json *enc_repair_waiting (struct enc_ctl *c, const struct enc_enclave *e);

#endif
