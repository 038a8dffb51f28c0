#include "node-agent/privd/bus.h"

#include <errno.h>
#include <string.h>
#include <systemd/sd-bus.h>

#include "base/cleanup.h"
#include "base/enctime.h"
#include "base/str.h"

#include "base/enc.h"

#define DEST "org.freedesktop.systemd1"
#define PATH "/org/freedesktop/systemd1"
#define MANAGER "org.freedesktop.systemd1.Manager"

enum { CALL_MS = 10000 };

ENC_DEFINE_AUTO (bus, sd_bus, sd_bus_flush_close_unref);
ENC_DEFINE_AUTO (message, sd_bus_message, sd_bus_message_unref);

static int bus_fail (struct enc_error *err, int rc, const sd_bus_error *why, const char *what, const char *unit)
{
	errno = -rc;
	if (why && why->message)
		return enc_fail (err, rc == -ETIMEDOUT ? ENC_ETIMEOUT : ENC_EFAILED, "%s %s: %s", what, unit, why->message);
	return enc_fail_sys (err, "%s %s", what, unit);
}

static bool not_loaded (const sd_bus_error *why)
{
	return sd_bus_error_has_name (why, "org.freedesktop.systemd1.NoSuchUnit");
}

static int bus_open (sd_bus **ret, struct enc_error *err)
{
	enc_auto (bus) sd_bus *bus = NULL;
	int rc;

	if ((rc = sd_bus_new (&bus)) < 0 || (rc = sd_bus_set_address (bus, "unix:path=/run/systemd/private")) < 0 ||
		(rc = sd_bus_start (bus)) < 0)
		return bus_fail (err, rc, NULL, "reach", "the service manager");
	(void)sd_bus_set_method_call_timeout (bus, CALL_MS * 1000ULL);
	*ret = ENC_TAKE (bus);
	return 0;
}

/* What becomes of one job. */
struct job {
	const char *path;
	char result[32];
};

static int on_removed (sd_bus_message *m, void *arg, sd_bus_error *unused)
{
	struct job *job = arg;
	const char *path, *unit, *result;
	uint32_t id;

	(void)unused;
	if (sd_bus_message_read (m, "uoss", &id, &path, &unit, &result) < 0)
		return 0;
	if (job->path && strcmp (path, job->path) == 0)
		(void)snprintf (job->result, sizeof job->result, "%s", result);
	return 0;
}

static int wait_job (sd_bus *bus, struct job *job, const char *unit, int64_t deadline, struct enc_error *err)
{
	int rc;

	while (!job->result[0]) {
		if ((rc = sd_bus_process (bus, NULL)) < 0)
			return bus_fail (err, rc, NULL, "wait for", unit);
		if (rc > 0)
			continue;
		if (enc_passed (deadline))
			return enc_fail (err, ENC_ETIMEOUT, "%s: the service manager is not done in time", unit);
		if ((rc = sd_bus_wait (bus, (uint64_t)enc_left_ms (deadline) * 1000)) < 0 && rc != -EINTR)
			return bus_fail (err, rc, NULL, "wait for", unit);
	}
	if (strcmp (job->result, "done") != 0 && strcmp (job->result, "skipped") != 0)
		return enc_error_next (err, enc_fail (err, ENC_EFAILED, "%s: %s", unit, job->result), "journalctl -u %s", unit);
	return 0;
}

int enc_bus_unit (enum enc_unit_act act, const char *unit, int64_t ms, struct enc_error *err)
{
	static const char *const calls[] = { "StartUnit", "StopUnit", "RestartUnit" };
	enc_auto (bus) sd_bus *bus = NULL;
	enc_auto (message) sd_bus_message *reply = NULL;
	sd_bus_error why = SD_BUS_ERROR_NULL;
	struct job job = { 0 };
	int rc = bus_open (&bus, err);

	if (rc < 0)
		return rc;
	if ((rc = sd_bus_match_signal (bus, NULL, NULL, PATH, MANAGER, "JobRemoved", on_removed, &job)) < 0 ||
		(rc = sd_bus_call_method (bus, DEST, PATH, MANAGER, "Subscribe", NULL, NULL, NULL)) < 0)
		return bus_fail (err, rc, NULL, "watch", unit);
	rc = sd_bus_call_method (bus, DEST, PATH, MANAGER, calls[act], &why, &reply, "ss", unit, "replace");
	if (rc < 0) {
		bool gone = act == ENC_UNIT_STOP && not_loaded (&why);
		rc = gone ? 0 : bus_fail (err, rc, &why, calls[act], unit);
		sd_bus_error_free (&why);
		return rc;
	}
	if ((rc = sd_bus_message_read (reply, "o", &job.path)) < 0)
		return bus_fail (err, rc, NULL, calls[act], unit);
	return wait_job (bus, &job, unit, enc_deadline_ms (ms), err);
}

static int unit_property (const char *unit, const char *interface, const char *name, char *ret, size_t size, struct enc_error *err)
{
	enc_auto (bus) sd_bus *bus = NULL;
	enc_auto_free char *path = NULL, *value = NULL;
	sd_bus_error why = SD_BUS_ERROR_NULL;
	int rc = bus_open (&bus, err);

	if (rc < 0)
		return rc;
	if ((rc = sd_bus_path_encode (PATH "/unit", unit, &path)) < 0)
		return bus_fail (err, rc, NULL, "name", unit);
	rc = sd_bus_get_property_string (bus, DEST, path, interface, name, &why, &value);
	if (rc < 0 && (not_loaded (&why) || sd_bus_error_has_name (&why, SD_BUS_ERROR_UNKNOWN_OBJECT))) {
		sd_bus_error_free (&why);
		value = enc_strdup ("");
		rc = value ? 0 : -ENOMEM;
	}
	if (rc < 0)
		rc = bus_fail (err, rc, &why, "ask for", unit);
	else
		rc = enc_str_copy (ret, size, value, err);
	sd_bus_error_free (&why);
	return rc;
}

int enc_bus_unit_state (const char *unit, char *ret, size_t size, struct enc_error *err)
{
	int rc = unit_property (unit, DEST ".Unit", "ActiveState", ret, size, err);

	return rc < 0 || ret[0] ? rc : enc_str_copy (ret, size, "inactive", err);
}

int enc_bus_unit_cgroup (const char *unit, char *ret, size_t size, struct enc_error *err)
{
	return unit_property (unit, DEST ".Service", "ControlGroup", ret, size, err);
}

void enc_bus_forgive (const char *unit)
{
	enc_auto (bus) sd_bus *bus = NULL;

	if (bus_open (&bus, NULL) == 0)
		(void)sd_bus_call_method (bus, DEST, PATH, MANAGER, "ResetFailedUnit", NULL, NULL, "s", unit);
}

static int plain_call (const char *call, const char *unit, int signal, struct enc_error *err)
{
	enc_auto (bus) sd_bus *bus = NULL;
	sd_bus_error why = SD_BUS_ERROR_NULL;
	int rc = bus_open (&bus, err);

	if (rc < 0)
		return rc;
	rc = unit ? sd_bus_call_method (bus, DEST, PATH, MANAGER, call, &why, NULL, "ssi", unit, "all", signal)
		  : sd_bus_call_method (bus, DEST, PATH, MANAGER, call, &why, NULL, NULL);
	if (rc < 0)
		rc = unit && not_loaded (&why) ? 0 : bus_fail (err, rc, &why, call, unit ? unit : "");
	else
		rc = 0;
	sd_bus_error_free (&why);
	return rc;
}

int enc_bus_reload (struct enc_error *err)
{
	return plain_call ("Reload", NULL, 0, err);
}

int enc_bus_kill (const char *unit, int signal, struct enc_error *err)
{
	return plain_call ("KillUnit", unit, signal, err);
}
