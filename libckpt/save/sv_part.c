/* sv_part.c -- the file put-RANK: what a rank put (docs/formats/partial.md, "Save sessions"). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/save/ck_save.h"

#define MAGIC "ZCKPTPUT"
#define VERSION 1u
#define HEAD 64u
#define RANGE 24u
#define TERM 32u
#define CRC 24u
#define CUT 24u
#define SUM 16u
#define MOST_WHY 4096u
#define MOST ((uint64_t)1 << 32)

void ck_sv_part_release(struct sv_part *p)
{
	ck_free(p->why);
	ck_free(p->range);
	ck_free(p->term);
	ck_free(p->crc);
	ck_free(p->cut);
	memset(p, 0, sizeof(*p));
}

static void put_head(const struct sv_part *p, uint32_t why, uint8_t *to)
{
	memcpy(to, MAGIC, 8);
	ck_put_le32(to + 8, VERSION);
	ck_put_le32(to + 12, p->rank);
	ck_put_le32(to + 16, (uint32_t)p->code);
	ck_put_le32(to + 20, why);
	ck_put_le64(to + 24, p->nranges);
	ck_put_le64(to + 32, p->nterms);
	ck_put_le64(to + 40, p->ncrcs);
	ck_put_le64(to + 48, p->ncuts);
	ck_put_le64(to + 56, 0);
}

static uint8_t *put_all(const struct sv_part *p, uint8_t *to)
{
	for (uint64_t i = 0; i < p->nranges; i++, to += RANGE) {
		ck_put_le64(to, p->range[i].state);
		ck_put_le64(to + 8, p->range[i].first);
		ck_put_le64(to + 16, p->range[i].count);
	}
	for (uint64_t i = 0; i < p->nterms; i++, to += TERM) {
		ck_put_le64(to, p->term[i].state);
		ck_put_le64(to + 8, p->term[i].first);
		ck_put_le64(to + 16, p->term[i].sum.lo);
		ck_put_le64(to + 24, p->term[i].sum.hi);
	}
	for (uint64_t i = 0; i < p->ncrcs; i++, to += CRC) {
		ck_put_le32(to, p->crc[i].slot);
		ck_put_le32(to + 4, p->crc[i].crc);
		ck_put_le64(to + 8, p->crc[i].off);
		ck_put_le64(to + 16, p->crc[i].bytes);
	}
	for (uint64_t i = 0; i < p->ncuts; i++, to += CUT) {
		ck_put_le64(to, p->cut[i].tensor);
		ck_put_le64(to + 8, p->cut[i].first);
		ck_put_le64(to + 16, p->cut[i].count);
	}
	return to;
}

static int write_bytes(const char *path, const uint8_t *p, size_t n, struct ckpt_err *err)
{
	const int fd = ck_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
	int rc = 0;

	if (fd < 0)
		return ck_fail_sys(err, errno, "open", path);
	while (!rc && n) {
		const ssize_t k = ck_sys.write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			rc = ck_fail_sys(err, k ? errno : EIO, "write", path);
		p += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	if (ck_close(fd) && !rc)
		rc = ck_fail_sys(err, errno, "close", path);
	return rc;
}

int ck_sv_part_write(const struct sv_part *p, const char *path, struct ckpt_err *err)
{
	const size_t why = p->why ? strnlen(p->why, MOST_WHY) : 0;
	const uint64_t n = HEAD + p->nranges * RANGE + p->nterms * TERM + p->ncrcs * CRC +
			   p->ncuts * CUT + why + SUM;
	uint8_t *bytes = ck_alloc(n), *at;
	struct ck_hash128 sum;
	int rc;

	if (!bytes)
		return ck_fail_nomem(err, "a record", n);
	put_head(p, (uint32_t)why, bytes);
	at = put_all(p, bytes + HEAD);
	if (why)
		memcpy(at, p->why, why);
	sum = ck_hash128(bytes, n - SUM);
	ck_put_le64(bytes + n - SUM, sum.lo);
	ck_put_le64(bytes + n - SUM + 8, sum.hi);
	rc = write_bytes(path, bytes, n, err);
	ck_free(bytes);
	return rc;
}

/* ---- reading ---- */

struct counts {
	uint64_t ranges, terms, crcs, cuts, why;
};

/* The counts are those of the bytes that are there. */
static bool take_head(const uint8_t *p, uint64_t n, struct counts *c)
{
	uint64_t need = HEAD + SUM;
	struct ck_hash128 sum;

	if (n < HEAD + SUM || memcmp(p, MAGIC, 8) || ck_le32(p + 8) != VERSION)
		return false;
	*c = (struct counts){
		ck_le64(p + 24), ck_le64(p + 32), ck_le64(p + 40), ck_le64(p + 48),
		ck_le32(p + 20),
	};
	if (c->ranges > n || c->terms > n || c->crcs > n || c->cuts > n || c->why > MOST_WHY)
		return false;
	need += c->ranges * RANGE + c->terms * TERM + c->crcs * CRC + c->cuts * CUT + c->why;
	sum = ck_hash128(p, n - SUM);
	return need == n && ck_le64(p + n - SUM) == sum.lo && ck_le64(p + n - 8) == sum.hi;
}

static int make_room(struct sv_part *p, const struct counts *c, struct ckpt_err *err)
{
	p->range = ck_alloc_array(c->ranges, sizeof(*p->range));
	p->term = ck_alloc_array(c->terms, sizeof(*p->term));
	p->crc = ck_alloc_array(c->crcs, sizeof(*p->crc));
	p->cut = ck_alloc_array(c->cuts, sizeof(*p->cut));
	p->why = ck_zalloc(c->why + 1);
	if (p->range && p->term && p->crc && p->cut && p->why)
		return 0;
	return ck_fail_nomem(err, "a rank's record", c->ranges);
}

static void take_all(struct sv_part *p, const struct counts *c, const uint8_t *at)
{
	for (; p->nranges < c->ranges; p->nranges++, at += RANGE)
		p->range[p->nranges] = (struct sv_range){
			.state = (uint32_t)ck_le64(at), .first = ck_le64(at + 8),
			.count = ck_le64(at + 16), .rank = p->rank,
		};
	for (; p->nterms < c->terms; p->nterms++, at += TERM)
		p->term[p->nterms] = (struct sv_term){
			.state = (uint32_t)ck_le64(at), .first = ck_le64(at + 8),
			.sum = { .lo = ck_le64(at + 16), .hi = ck_le64(at + 24) },
		};
	for (; p->ncrcs < c->crcs; p->ncrcs++, at += CRC)
		p->crc[p->ncrcs] = (struct ck_crc_piece){
			.slot = ck_le32(at), .crc = ck_le32(at + 4), .off = ck_le64(at + 8),
			.bytes = ck_le64(at + 16),
		};
	for (; p->ncuts < c->cuts; p->ncuts++, at += CUT)
		p->cut[p->ncuts] = (struct ck_cut){
			.tensor = (uint32_t)ck_le64(at), .first = ck_le64(at + 8),
			.count = ck_le64(at + 16), .rank = p->rank,
		};
	memcpy(p->why, at, c->why);
}

int ck_sv_part_read(struct sv_part *p, const char *path, struct ckpt_err *err)
{
	struct counts c = { 0 };
	char *bytes = NULL;
	uint64_t n = 0;
	int rc;

	memset(p, 0, sizeof(*p));
	rc = ck_file_read(path, MOST, &bytes, &n, err);
	if (!rc && !take_head((const uint8_t *)bytes, n, &c))
		rc = ck_fail(err, CKPT_E_CORRUPT, path, CKPT_NO_OFFSET,
			     "the record of this rank is incomplete (%" PRIu64 " bytes): cut "
			     "short, or damaged", n);
	if (!rc) {
		p->rank = ck_le32((const uint8_t *)bytes + 12);
		p->code = (int)ck_le32((const uint8_t *)bytes + 16);
		rc = make_room(p, &c, err);
	}
	if (!rc)
		take_all(p, &c, (const uint8_t *)bytes + HEAD);
	else
		ck_sv_part_release(p);
	ck_free(bytes);
	return rc;
}
