/* The little of netlink that privd needs: one request at a time over a blocking socket, with a receive deadline. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/netlink.h>

#include "base/error.h"

struct enc_nl {
	int fd;
	uint32_t seq;
};

/* `protocol` such as NETLINK_ROUTE. Close with enc_nl_done(). */
int enc_nl_open (struct enc_nl *nl, int protocol, struct enc_error *err) ENC_MUST_USE;
void enc_nl_done (struct enc_nl *nl);

/* One request message being built. */
struct enc_nl_msg {
	union {
		struct nlmsghdr head;
		uint8_t bytes[4096];
	};
	bool full;
};

/* Begin with the family's own header, `len` bytes of `body`. NLM_F_REQUEST is added to `flags`. */
void enc_nl_begin (struct enc_nl_msg *msg, uint16_t type, uint16_t flags, const void *body, size_t len);
void enc_nl_attr (struct enc_nl_msg *msg, uint16_t type, const void *data, size_t len);
void enc_nl_attr_u32 (struct enc_nl_msg *msg, uint16_t type, uint32_t value);
void enc_nl_attr_str (struct enc_nl_msg *msg, uint16_t type, const char *text);
struct nlattr *enc_nl_nest (struct enc_nl_msg *msg, uint16_t type);
void enc_nl_nest_end (struct enc_nl_msg *msg, struct nlattr *nest);

/* Each message of the answer; a negative result stops and is returned. */
typedef int (*enc_nl_fn) (const struct nlmsghdr *msg, void *arg, struct enc_error *err);

/* Send and read until the acknowledgement or the end of the dump. `fn` may be NULL. The kernel's error comes as -ENC_ESYS with
 * `sys` = errno (and the codes of enc_fail_sys()). */
int enc_nl_talk (struct enc_nl *nl, struct enc_nl_msg *msg, enc_nl_fn fn, void *arg, struct enc_error *err) ENC_MUST_USE;

/* The attribute of that type after a header of `header` bytes, or NULL; data and its length. */
const void *enc_nl_find (const struct nlmsghdr *msg, size_t header, uint16_t type, size_t *ret_len);
