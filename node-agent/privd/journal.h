/* The node's journal while an enclave holds the node. Whatever people say there (logger, output of units, names in messages of sshd and of
 * slurmstepd) must not reach a disk in clear, so the journal is kept in memory and bounded, and what is in it does not come along on the way
 * back; what the site needs to know of a stay stands in the audit log. The same for core files (systemd-coredump(8)).
 *
 * The setting is a drop-in in /etc, so that a node that is rebooted inside has it before its journal starts. journald.conf(5). */
#pragma once

#include <stddef.h>

#include "node-agent/privd/conf.h"

/* In memory from now on: nothing to do if it is already. Checked, whatever other settings the site has: ENC_ECONFLICT when the journal
 * still writes to /var/log/journal. */
int enc_journal_hold (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;

/* Wipe, and back to the site's own setting. */
int enc_journal_release (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;

/* Take away all that was said until now. Only while held. */
int enc_journal_wipe (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;

/* A stay begins: nothing that is said from here on counts as wiped. */
int enc_journal_begin (const struct enc_privd_conf *conf, struct enc_error *err) ENC_MUST_USE;

/* Entries in memory from before the last wipe of this stay, and entries of people since. */
int enc_journal_entries (const struct enc_privd_conf *conf, size_t *ret_n, struct enc_error *err) ENC_MUST_USE;

/* Files of the journal on disk that were written to while it was held. There is no cleaner for these. */
int enc_journal_on_disk (const struct enc_privd_conf *conf, size_t *ret_n, struct enc_error *err) ENC_MUST_USE;
