/* ck_findings.c -- see ck_findings.h. */
#include "libckpt/format/ck_findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define KEPT_OF_A_KIND 200

static const struct {
	const char *name;
	enum ckpt_severity severity;
	enum ckpt_code code;
	const char *text;
} kinds[CK_FINDING_COUNT] = {
#define CKPT_E_OK CKPT_OK
#define X(id, severity, code, text) { #id, CKPT_##severity, CKPT_E_##code, text },
	CK_FINDINGS(X)
#undef X
};

const char *ck_finding_name(enum ck_finding_id id)
{
	return kinds[id].name;
}

bool ck_finding_by_name(const char *name, size_t len, struct ckpt_finding *out)
{
	for (int i = 0; i < CK_FINDING_COUNT; i++) {
		if (strlen(kinds[i].name) != len || memcmp(kinds[i].name, name, len))
			continue;
		*out = (struct ckpt_finding){
			.id = kinds[i].name, .severity = kinds[i].severity, .where = "",
			.text = kinds[i].text, .code = kinds[i].code,
		};
		return true;
	}
	return false;
}

bool ck_finding_is_name(const char *name)
{
	struct ckpt_finding one;

	return ck_finding_by_name(name, strlen(name), &one);
}

static enum ckpt_severity severity_of(const struct ck_findings *f, enum ck_finding_id id)
{
	for (const char *const *p = f->as_warning; p && *p; p++)
		if (!strcmp(*p, kinds[id].name) && kinds[id].severity > CKPT_WARN)
			return CKPT_WARN;
	return kinds[id].severity;
}

/* Without memory the kind and a constant text are what is left of a finding. */
static void lose(struct ck_findings *f, const struct ckpt_finding *one, enum ck_finding_id id)
{
	f->dropped++;
	if (f->lost.id && f->lost.severity >= one->severity)
		return;
	f->lost = *one;
	f->lost.where = "";
	f->lost.text = kinds[id].text;
}

void ck_findings_add(struct ck_findings *f, enum ck_finding_id id, const char *where,
		     const char *fmt, ...)
{
	struct ckpt_finding one = {
		.id = kinds[id].name,
		.severity = severity_of(f, id),
		.code = kinds[id].code,
	};
	char text[768];
	va_list ap;

	if (f->of_kind[id]++ > KEPT_OF_A_KIND) {
		f->dropped++;
		return;
	}
	if (ck_grow(&f->list, &f->cap, f->n + 1, sizeof(*f->list), NULL)) {
		lose(f, &one, id);
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (f->of_kind[id] > KEPT_OF_A_KIND) {
		where = "";
		snprintf(text, sizeof(text), "there are more of these than the %d that are listed",
			 KEPT_OF_A_KIND);
	}
	one.where = ck_arena_strdup(&f->arena, where ? where : "");
	one.text = ck_arena_strdup(&f->arena, text);
	if (!one.where || !one.text) {
		lose(f, &one, id);
		return;
	}
	f->list[f->n++] = one;
}

static enum ck_finding_id number_of(const char *name)
{
	int i = 0;

	while (i < CK_FINDING_COUNT - 1 && strcmp(kinds[i].name, name))
		i++;
	return (enum ck_finding_id)i;
}

void ck_findings_merge(struct ck_findings *f, const struct ck_findings *from,
		       enum ck_finding_id but)
{
	for (uint64_t i = 0; i < from->n; i++) {
		const enum ck_finding_id id = number_of(from->list[i].id);

		if (id != but)
			ck_findings_add(f, id, from->list[i].where, "%s", from->list[i].text);
	}
	if (from->lost.id)
		lose(f, &from->lost, number_of(from->lost.id));
	f->dropped += from->dropped;
}

void ck_findings_drop(struct ck_findings *f, enum ck_finding_id id)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < f->n; i++)
		if (strcmp(f->list[i].id, kinds[id].name) != 0)
			f->list[kept++] = f->list[i];
	f->n = kept;
	f->of_kind[id] = 0;
}

const struct ckpt_finding *ck_findings_worst(const struct ck_findings *f,
					     enum ckpt_severity at_least)
{
	for (uint64_t i = 0; i < f->n; i++)
		if (f->list[i].severity >= at_least)
			return &f->list[i];
	return f->lost.id && f->lost.severity >= at_least ? &f->lost : NULL;
}

int ck_findings_fail(const struct ckpt_finding *finding, struct ckpt_err *err)
{
	return ck_fail(err, finding->code ? finding->code : CKPT_E_MISMATCH, finding->where,
		       CKPT_NO_OFFSET, "%s: %s", finding->id, finding->text);
}

void ck_findings_release(struct ck_findings *f)
{
	ck_arena_release(&f->arena);
	ck_free(f->list);
	memset(f, 0, sizeof(*f));
}
