/* See t_disk.h: calls that change names (rmdir, unlink, rename, link) or list them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_disk_fs.h"

struct listing {
	char **name;
	size_t n, at;
	struct dirent entry;
};

static bool is_empty(uint32_t dir)
{
	for (size_t i = 0; i < t_now.disk->nslots; i++)
		if (t_now.disk->slot[i].dir == dir && t_now.disk->slot[i].to != T_NOTHING)
			return false;
	return true;
}

int t_disk_rmdir(const char *path)
{
	const uint32_t at = t_disk_find(path), slot = t_disk_slot(path);

	if (at == T_NOTHING)
		return t_disk_fail(ENOENT);
	if (!t_disk_is_dir(at))
		return t_disk_fail(ENOTDIR);
	if (!is_empty(at))
		return t_disk_fail(ENOTEMPTY);
	t_disk_set_name(t_disk_note(T_CALL_NAMES, t_fmt("rmdir %s", path)), slot, T_NOTHING);
	return 0;
}

int t_disk_unlink(const char *path)
{
	const uint32_t at = t_disk_find(path), slot = t_disk_slot(path);

	if (at == T_NOTHING)
		return t_disk_fail(ENOENT);
	if (t_disk_is_dir(at))
		return t_disk_fail(EISDIR);
	t_disk_set_name(t_disk_note(T_CALL_NAMES, t_fmt("unlink %s", path)), slot, T_NOTHING);
	return 0;
}

/* 0, or why A cannot be renamed to what B is. */
static int why_not(uint32_t a, uint32_t b, unsigned flags)
{
	if (a == T_NOTHING || (flags == CK_RENAME_EXCHANGE && b == T_NOTHING))
		return ENOENT;
	if (flags && t_now.plain_renames)
		return EINVAL;
	if (b == T_NOTHING || flags == CK_RENAME_EXCHANGE)
		return 0;
	if (flags == CK_RENAME_NOREPLACE)
		return EEXIST;
	if (t_disk_is_dir(a) != t_disk_is_dir(b))
		return t_disk_is_dir(b) ? EISDIR : ENOTDIR;
	return t_disk_is_dir(b) && !is_empty(b) ? ENOTEMPTY : 0;
}

int t_disk_rename(const char *from, const char *to, unsigned flags)
{
	const uint32_t sa = t_disk_slot(from), sb = t_disk_slot(to);
	struct t_call *call;
	uint32_t a, b;
	int why;

	if (sa == T_NOTHING || sb == T_NOTHING)
		return t_disk_fail(ENOENT);
	a = t_now.disk->slot[sa].to;
	b = t_now.disk->slot[sb].to;
	why = why_not(a, b, flags);
	if (why)
		return t_disk_fail(why);
	if (sa == sb)
		return 0;
	call = t_disk_note(T_CALL_NAMES, t_fmt("rename %s %s%s", from, to,
						flags == CK_RENAME_EXCHANGE ? " (exchange)" : ""));
	t_disk_set_name(call, sa, flags == CK_RENAME_EXCHANGE ? b : T_NOTHING);
	t_disk_set_name(call, sb, a);
	return 0;
}

int t_disk_link(const char *from, const char *to)
{
	const uint32_t at = t_disk_find(from), slot = t_disk_slot(to);

	if (at == T_NOTHING || slot == T_NOTHING)
		return t_disk_fail(ENOENT);
	if (t_now.disk->slot[slot].to != T_NOTHING)
		return t_disk_fail(EEXIST);
	if (t_disk_is_dir(at))
		return t_disk_fail(EPERM);
	t_disk_set_name(t_disk_note(T_CALL_NAMES, t_fmt("link %s %s", from, to)), slot, at);
	return 0;
}

DIR *t_disk_opendir(const char *path)
{
	const uint32_t at = t_disk_find(path);
	struct listing *l;

	if (at == T_NOTHING)
		return NULL;
	if (!t_disk_is_dir(at)) {
		errno = ENOTDIR;
		return NULL;
	}
	l = t_alloc(sizeof(*l));
	for (size_t i = 0; i < t_now.disk->nslots; i++) {
		if (t_now.disk->slot[i].dir != at || t_now.disk->slot[i].to == T_NOTHING)
			continue;
		l->name = t_grow(l->name, (l->n + 1) * sizeof(*l->name));
		l->name[l->n++] = t_fmt("%s", t_now.disk->slot[i].name);
	}
	t_now.nlistings++;
	return (DIR *)(void *)l;
}

struct dirent *t_disk_readdir(DIR *dir)
{
	struct listing *l = (struct listing *)(void *)dir;

	if (l->at == l->n)
		return NULL;
	memcpy(l->entry.d_name, l->name[l->at], strlen(l->name[l->at]) + 1);
	l->at++;
	return &l->entry;
}

int t_disk_closedir(DIR *dir)
{
	struct listing *l = (struct listing *)(void *)dir;

	for (size_t i = 0; i < l->n; i++)
		free(l->name[i]);
	free(l->name);
	free(l);
	t_now.nlistings--;
	return 0;
}
