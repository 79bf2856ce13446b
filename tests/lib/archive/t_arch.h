/*
 * Archives of torch.save taken apart and put together again, written apart from libckpt on
 * purpose: what makes a damage look sound must not share its mistakes.
 */
#ifndef T_ARCH_H
#define T_ARCH_H

#include <stddef.h>
#include <stdint.h>

#define T_ARCH_MOST 400

struct t_arch_member {
	char name[200];		/* with the prefix */
	const char *rest;	/* after it */
	size_t header, data, n;	/* places in the file; n bytes of content */
	size_t end;		/* after the descriptor, if there is one */
	size_t central, central_n;
	uint32_t crc;
	int descriptor;
};

struct t_arch {
	uint8_t *p;		/* lent */
	size_t n;
	struct t_arch_member m[T_ARCH_MOST];	/* in the order of the directory */
	size_t count;
	size_t dir, end64, locator, end;	/* end64 and locator 0 = there are none */
};

/* 0 if it is no archive of stored members. */
int t_arch_parse(struct t_arch *a, uint8_t *p, size_t n);
/* The member PREFIX/rest, or NULL. */
struct t_arch_member *t_arch_find(struct t_arch *a, const char *rest);

/* After bytes were changed in place: the CRC-32 of every member that has one. */
void t_arch_fix_crcs(struct t_arch *a);
/* And torch's sum of them in .data/serialization_id, where it is. */
void t_arch_fix_id(struct t_arch *a);
int t_arch_has_id(struct t_arch *a);

/* A member that is to have other bytes, or (number T_ARCH_MOST) a new one before the last two. */
struct t_arch_new {
	size_t number;
	const char *rest;	/* of a new one */
	const uint8_t *p;
	size_t n;
};

/*
 * An archive of the same members in torch's way, their content at multiples of 'align', with
 * another prefix unless it is NULL, and what is new of them. free() it.
 */
uint8_t *t_arch_build(const struct t_arch *a, size_t align, const char *prefix,
		      const struct t_arch_new *made, size_t nmade, size_t *n_out);

uint32_t t_crc32(const uint8_t *p, size_t n);

#endif
