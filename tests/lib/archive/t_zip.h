/* A zip archive in memory, built entry by entry, for tests that then bend it. */
#ifndef T_ZIP_H
#define T_ZIP_H

#include <stddef.h>
#include <stdint.h>

#define T_ZIP_MAX 256

struct t_zip {
	uint8_t *p;			/* the archive; free() it */
	size_t n;
	struct {
		char name[80];
		size_t header;		/* of the local header */
		size_t data;		/* of the content */
		size_t central;		/* of the directory entry, after t_zip_end */
		size_t packed, bytes;
		uint32_t crc;
		uint16_t method;
	} entry[T_ZIP_MAX];
	size_t count;
	size_t dir;			/* of the directory */
	size_t end;			/* of the end record */
};

/* Add a stored entry. */
void t_zip_add(struct t_zip *z, const char *name, const void *data, size_t n);
/* Add an entry packed with deflate. */
void t_zip_deflate(struct t_zip *z, const char *name, const void *data, size_t n);
/* Directory and end record. */
void t_zip_end(struct t_zip *z);
void t_put16(uint8_t *p, unsigned v);
void t_put32(uint8_t *p, uint32_t v);

#endif
