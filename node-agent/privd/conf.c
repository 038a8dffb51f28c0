#include "node-agent/privd/conf.h"

#include "base/enc.h"

#define PATH(member, path, text) \
	ENC_FIELD (struct enc_privd_conf, member, #member, ENC_T_PATH, .dflt = "\"" path "\"", .help = text)

const struct enc_field enc_privd_fields[] = {
	ENC_FIELD (struct enc_privd_conf, node, "node", ENC_T_NODE, .help = "name of this node; default: the host name"),
	PATH (run_dir, "/run/enclave-node", "state of this boot"),
	PATH (state_dir, "/var/lib/enclave-node", "identity of the node and the marker that it is held"),
	PATH (facts_socket, "/run/enclave/privd.sock", "where plugins ask for facts"),
	PATH (keyd_vkey, "/etc/enclave/keyd.vkey", "verifier key of the key service"),
	PATH (agent, "/usr/sbin/enclave-agentd", "program of the agent"),
	PATH (agent_config, "/etc/enclave/agentd.json", "configuration of the agent"),
	ENC_FIELD (struct enc_privd_conf, agent_user, "agent_user", ENC_T_USER, .dflt = "\"enclave-agent\"", .help = "user of the agent"),
	ENC_FIELD (struct enc_privd_conf, controller4, "controller4", ENC_T_TEXT, .max = 15, .help = "the only IPv4 controller to obey"),
	ENC_FIELD (struct enc_privd_conf, controller6, "controller6", ENC_T_TEXT, .max = 45, .help = "the only IPv6 controller to obey"),
	ENC_FIELD (struct enc_privd_conf, controller_port, "controller_port", ENC_T_U32, .max = 65535, .help = "its port; 0 any"),
	PATH (disk, "/var/lib/enclave/disk", "this node's file system for scratch (ext4 with encrypt)"),
	PATH (shared, "/srv/enclave-shared", "the site's directory for project volumes"),
	PATH (root, "/enclave", "where volumes appear"),
	PATH (templates, "/usr/share/enclave/templates", "templates of the files for an enclave's services"),
	PATH (units, "/etc/enclave/units.json", "the site's units"),
	PATH (plugin, "/usr/lib/x86_64-linux-gnu/slurm-wlm/spank_enclave.so", "the SPANK plugin whose hash plugins are told"),
	ENC_FIELD (struct enc_privd_conf, plugstacks, "plugstacks", ENC_T_PATHS, .max = 8,
		.dflt = "[\"/run/enclave/slurm/plugstack.conf\",\"/etc/slurm/plugstack.conf\"]", .help = "the first that exists is in force"),
	ENC_FIELD (struct enc_privd_conf, site_users, "site_users", ENC_T_USERS, .max = 64, .dflt = "[]",
		.help = "users whose processes a clean leaves alone"),
	ENC_FIELD (struct enc_privd_conf, grace_s, "grace_s", ENC_T_DURATION, .dflt = "3600",
		.help = "from the end of a grant until volumes are locked"),
	ENC_FIELD (struct enc_privd_conf, uid_min, "uid_min", ENC_T_U64, .min = 100, .max = 100000, .dflt = "1000",
		.help = "the first uid of people"),
#ifdef ENC_POINTS
	ENC_FIELD (struct enc_privd_conf, no_clean, "no_clean", ENC_T_STRS, .max = 64, .dflt = "[]", .flags = ENC_HIDDEN,
		.help = "residue rows whose cleaner is off (test builds)"),
#endif
	ENC_FIELD_END,
};
