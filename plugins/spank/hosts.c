#include "plugins/spank/hosts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <slurm/slurm.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "base/enc.h"

int enc_hosts_nth (const char *list, unsigned n, char *ret, size_t size, struct enc_error *err)
{
	hostlist_t hosts = slurm_hostlist_create (list);
	enc_auto_free char *host = NULL;

	if (!hosts)
		return enc_fail (err, ENC_EINVAL, "the list of the job's nodes cannot be read");
	for (unsigned i = 0; i <= n; i++) {
		free (host);
		if (!(host = slurm_hostlist_shift (hosts)))
			break;
	}
	slurm_hostlist_destroy (hosts);
	if (!host || !enc_node_name_ok (host))
		return enc_fail (err, ENC_EINVAL, "the list of the job's nodes is too short");
	return enc_str_copy (ret, size, host, err);
}

/* The value of "key" in one line of slurm.conf: up to the next blank. */
static bool word_of (const char *line, size_t len, const char *key, char *ret, size_t size)
{
	const char *at = memmem (line, len, key, strlen (key));
	size_t n;

	if (!at)
		return false;
	at += strlen (key);
	n = strcspn (at, " \t\r\n");
	if (n == 0 || n >= size)
		return false;
	memcpy (ret, at, n);
	ret[n] = '\0';
	return true;
}

int enc_hosts_address (const char *conf_text, const char *node, char *ret, size_t size, struct enc_error *err)
{
	for (const char *line = conf_text; *line;) {
		size_t len = strcspn (line, "\n");
		char name[65], address[64];
		if (enc_starts (line, "NodeName=") && word_of (line, len, "NodeName=", name, sizeof name) && strcmp (name, node) == 0 &&
			word_of (line, len, " NodeAddr=", address, sizeof address))
			return enc_str_copy (ret, size, address, err);
		line += len + (line[len] == '\n');
	}
	return enc_fail (err, ENC_ENOTFOUND, "node %s has no address in this enclave", node);
}

int enc_hosts_interface (const char *address, char *ret, size_t size, struct enc_error *err)
{
	struct ifaddrs *all = NULL;
	struct in_addr want;
	int rc = enc_fail (err, ENC_ENOTFOUND, "no interface has the address %s", address);

	if (inet_pton (AF_INET, address, &want) != 1 || getifaddrs (&all) < 0)
		return rc;
	for (const struct ifaddrs *i = all; rc < 0 && i; i = i->ifa_next) {
		struct sockaddr_in in;
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy (&in, i->ifa_addr, sizeof in);
		if (in.sin_addr.s_addr == want.s_addr)
			rc = enc_str_copy (ret, size, i->ifa_name, err);
	}
	freeifaddrs (all);
	return rc;
}
