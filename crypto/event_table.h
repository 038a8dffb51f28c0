#ifndef ENC_CRYPTO_EVENT_TABLE_H
#define ENC_CRYPTO_EVENT_TABLE_H

#include "crypto/event.h"

/* The two tables, each ended by an empty row. Only event.c and its test look at them. */
extern const struct enc_event enc_event_rows[];
extern const struct enc_event_field enc_event_fields[];

#endif
