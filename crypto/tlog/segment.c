#include "crypto/tlog/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/enc.h"

#define WINDOW (1u << 20)
#define NOTE_MAX ENC_NOTE_MAX

/* A file and the part of it that is in memory. */
struct window {
	int fd;
	int eof;
	uint64_t offset; /* of data[at] in the file */
	size_t at;
	size_t end;
	uint8_t data[WINDOW];
};

struct enc_segment {
	struct window w;
};

struct enc_heads {
	struct window w;
};

/* Have at least `want` bytes from `at` on, or all up to the end of the file. */
static int window_fill (struct window *w, size_t want)
{
	if (w->end - w->at >= want || w->eof)
		return 0;
	memmove (w->data, w->data + w->at, w->end - w->at);
	w->end -= w->at;
	w->at = 0;
	while (w->end < WINDOW && !w->eof) {
		ssize_t n = read (w->fd, w->data + w->end, WINDOW - w->end);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		w->eof = n == 0;
		w->end += (size_t)n;
	}
	return 0;
}

static void window_skip (struct window *w, size_t n)
{
	w->at += n;
	w->offset += n;
}

static int window_open (struct window *w, int dirfd, const char *name, uint64_t offset, struct enc_error *err)
{
	w->fd = openat (dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (w->fd < 0)
		return enc_fail_sys (err, "cannot open %s", name);
	if (lseek (w->fd, (off_t)offset, SEEK_SET) < 0)
		return enc_fail_sys (err, "cannot read %s", name);
	w->offset = offset;
	return 0;
}

static int by_number (const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int list_add (struct enc_segment_list *list, uint64_t first)
{
	uint64_t *grown;

	if (list->n % 64 == 0) {
		grown = realloc (list->first, (list->n + 64) * sizeof (*grown));
		if (!grown)
			return -1;
		list->first = grown;
	}
	list->first[list->n++] = first;
	return 0;
}

int enc_segment_list_read (int dirfd, struct enc_segment_list *ret, struct enc_error *err)
{
	struct enc_segment_list list = { 0 };
	enc_auto_close int fd = openat (dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir (fd);
	struct dirent *entry;
	uint64_t first;
	int rc = 0;

	if (!dir)
		return enc_fail_sys (err, "cannot list the log folder");
	fd = -1;
	while (rc == 0 && (entry = readdir (dir)))
		if (enc_segment_parse (entry->d_name, &first) == 0)
			rc = list_add (&list, first);
	(void)closedir (dir);
	if (rc < 0) {
		enc_segment_list_done (&list);
		return enc_fail (err, ENC_ENOMEM, "out of memory");
	}
	if (list.n > 0)
		qsort (list.first, list.n, sizeof (list.first[0]), by_number);
	*ret = list;
	return 0;
}

void enc_segment_list_done (struct enc_segment_list *list)
{
	free (list->first);
	*list = (struct enc_segment_list){ 0 };
}

struct enc_segment *enc_segment_open (int dirfd, uint64_t first, uint64_t offset, struct enc_error *err)
{
	struct enc_segment *segment = calloc (1, sizeof (*segment));
	char name[ENC_SEGMENT_NAME_SIZE];

	if (!segment) {
		(void)enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	enc_segment_name (first, name);
	if (window_open (&segment->w, dirfd, name, offset, err) < 0) {
		enc_segment_free (segment);
		return NULL;
	}
	return segment;
}

void enc_segment_free (struct enc_segment *segment)
{
	if (segment && segment->w.fd >= 0)
		(void)close (segment->w.fd);
	free (segment);
}

enum enc_read_state enc_segment_next (struct enc_segment *segment, struct enc_frame *ret, uint64_t *ret_offset)
{
	struct window *w = &segment->w;
	enum enc_frame_state state;

	*ret_offset = w->offset;
	if (window_fill (w, ENC_FRAME_MAX) < 0)
		return ENC_READ_ERROR;
	if (w->at == w->end)
		return ENC_READ_END;
	state = enc_frame_parse (w->data + w->at, w->end - w->at, ret);
	if (state != ENC_FRAME_GOOD)
		return state == ENC_FRAME_SHORT ? ENC_READ_SHORT : ENC_READ_BAD;
	window_skip (w, ret->size);
	return ENC_READ_GOOD;
}

struct enc_heads *enc_heads_open (int dirfd, const char *name, struct enc_error *err)
{
	struct enc_heads *heads = calloc (1, sizeof (*heads));

	if (!heads) {
		(void)enc_fail (err, ENC_ENOMEM, "out of memory");
		return NULL;
	}
	if (window_open (&heads->w, dirfd, name, 0, err) < 0) {
		enc_heads_free (heads);
		return NULL;
	}
	return heads;
}

void enc_heads_free (struct enc_heads *heads)
{
	if (heads && heads->w.fd >= 0)
		(void)close (heads->w.fd);
	free (heads);
}

/* The length of the note that starts at `p`: a text, an empty line, and all
 * signature lines after it. 0 when it does not end within `left` bytes. */
static size_t note_length (const char *p, size_t left)
{
	static const char dash[] = "\xe2\x80\x94 ";
	const char *split = memmem (p, left, "\n\n", 2);
	size_t at = split ? (size_t)(split - p) + 2 : left;
	size_t end = 0;

	while (at < left && left - at >= sizeof (dash) - 1 && memcmp (p + at, dash, sizeof (dash) - 1) == 0) {
		const char *nl = memchr (p + at, '\n', left - at);

		if (!nl)
			return 0;
		at = (size_t)(nl - p) + 1;
		end = at;
	}
	return end;
}

enum enc_read_state enc_heads_next (struct enc_heads *heads, struct enc_heads_item *ret)
{
	struct window *w = &heads->w;
	size_t left, len;

	if (window_fill (w, 2 * NOTE_MAX) < 0)
		return ENC_READ_ERROR;
	left = w->end - w->at;
	ret->offset = w->offset;
	if (left == 0)
		return ENC_READ_END;
	len = note_length ((const char *)w->data + w->at, left < NOTE_MAX ? left : NOTE_MAX);
	if (len == 0)
		return left < NOTE_MAX ? ENC_READ_SHORT : ENC_READ_BAD;
	ret->text = (const char *)w->data + w->at;
	ret->len = len;
	window_skip (w, len);
	return ENC_READ_GOOD;
}
