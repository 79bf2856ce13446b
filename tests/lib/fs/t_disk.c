/* See t_disk.h: images. */
#include "tests/lib/fs/t_disk_priv.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_hash.h"
#include "tests/lib/fs/t_dir.h"

struct t_blob *t_blob_new(size_t n)
{
	struct t_blob *b = t_alloc(sizeof(*b) + n);

	b->refs = 1;
	b->n = n;
	return b;
}

struct t_blob *t_blob_hold(struct t_blob *b)
{
	if (b)
		b->refs++;
	return b;
}

void t_blob_drop(struct t_blob *b)
{
	if (b && !--b->refs)
		free(b);
}

void t_blob_done(struct t_blob *b)
{
	b->hash = ck_hash64(b->p, b->n);
}

uint32_t t_image_inode(struct t_image *im, bool is_dir)
{
	if (im->ninodes == im->inode_cap) {
		im->inode_cap = im->inode_cap * 2 + 16;
		im->inode = t_grow(im->inode, im->inode_cap * sizeof(*im->inode));
	}
	im->inode[im->ninodes] = (struct t_inode){ .is_dir = is_dir, .used = true };
	return (uint32_t)im->ninodes++;
}

struct t_image *t_image_new(void)
{
	struct t_image *im = t_alloc(sizeof(*im));

	t_image_inode(im, true);
	return im;
}

struct t_image *t_image_copy(const struct t_image *im)
{
	struct t_image *copy = t_alloc(sizeof(*copy));

	*copy = *im;
	copy->inode = t_alloc(im->inode_cap * sizeof(*im->inode));
	copy->slot = t_alloc(im->slot_cap * sizeof(*im->slot));
	for (size_t i = 0; i < im->ninodes; i++) {
		copy->inode[i] = im->inode[i];
		t_blob_hold(copy->inode[i].blob);
	}
	for (size_t i = 0; i < im->nslots; i++) {
		copy->slot[i] = im->slot[i];
		copy->slot[i].name = t_fmt("%s", im->slot[i].name);
	}
	return copy;
}

void t_image_free(struct t_image *im)
{
	if (!im)
		return;
	for (size_t i = 0; i < im->ninodes; i++)
		t_blob_drop(im->inode[i].blob);
	for (size_t i = 0; i < im->nslots; i++)
		free(im->slot[i].name);
	free(im->inode);
	free(im->slot);
	free(im);
}

static uint32_t find_slot(const struct t_image *im, uint32_t dir, const char *name, size_t n)
{
	for (size_t i = 0; i < im->nslots; i++)
		if (im->slot[i].dir == dir && !strncmp(im->slot[i].name, name, n) &&
		    !im->slot[i].name[n])
			return (uint32_t)i;
	return T_NOTHING;
}

uint32_t t_image_slot(struct t_image *im, uint32_t dir, const char *name)
{
	const uint32_t found = find_slot(im, dir, name, strlen(name));

	if (found != T_NOTHING)
		return found;
	if (im->nslots == im->slot_cap) {
		im->slot_cap = im->slot_cap * 2 + 16;
		im->slot = t_grow(im->slot, im->slot_cap * sizeof(*im->slot));
	}
	im->slot[im->nslots] = (struct t_slot){ dir, T_NOTHING, t_fmt("%s", name) };
	return (uint32_t)im->nslots++;
}

uint32_t t_image_find(const struct t_image *im, const char *path, uint32_t *slot_out)
{
	uint32_t at = 0, slot = T_NOTHING;

	while (at != T_NOTHING && *path) {
		const size_t n = strcspn(path, "/");

		if (n && !(n == 1 && *path == '.')) {
			slot = im->inode[at].is_dir ? find_slot(im, at, path, n) : T_NOTHING;
			at = slot == T_NOTHING ? T_NOTHING : im->slot[slot].to;
		}
		path += n + (path[n] == '/');
	}
	if (slot_out)
		*slot_out = slot;
	return at;
}

void t_image_put(struct t_image *im, const char *path, const void *p, size_t n)
{
	uint32_t at = 0;

	for (const char *s = path + 1; *s;) {
		const size_t k = strcspn(s, "/");
		char *name = t_fmt("%.*s", (int)k, s);
		const uint32_t slot = t_image_slot(im, at, name);

		if (im->slot[slot].to == T_NOTHING)
			im->slot[slot].to = t_image_inode(im, s[k] == '/');
		at = im->slot[slot].to;
		free(name);
		s += k + (s[k] == '/');
	}
	t_blob_drop(im->inode[at].blob);
	im->inode[at].blob = t_blob_new(n);
	if (n)
		memcpy(im->inode[at].blob->p, p, n);
	t_blob_done(im->inode[at].blob);
}

void t_image_put_dir(struct t_image *im, const char *path, const char *dir)
{
	char **names = t_dir_list(dir, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *from = t_fmt("%s/%s", dir, names[i]), *to = t_fmt("%s/%s", path, names[i]);

		if (t_is_dir(from)) {
			t_image_put_dir(im, to, from);
		} else {
			size_t n = 0;
			uint8_t *p = t_file_read(from, &n);

			if (!p)
				t_die("cannot read %s", from);
			t_image_put(im, to, p, n);
			free(p);
		}
		free(from);
		free(to);
	}
	t_list_free(names);
}

void t_image_remove(struct t_image *im, const char *path)
{
	uint32_t slot;

	if (t_image_find(im, path, &slot) != T_NOTHING)
		im->slot[slot].to = T_NOTHING;
	t_image_sweep(im);
}

bool t_image_has(const struct t_image *im, const char *path)
{
	return t_image_find(im, path, NULL) != T_NOTHING;
}

const uint8_t *t_image_file(const struct t_image *im, const char *path, size_t *n_out)
{
	const uint32_t at = t_image_find(im, path, NULL);

	if (at == T_NOTHING || im->inode[at].is_dir)
		return NULL;
	*n_out = im->inode[at].blob ? im->inode[at].blob->n : 0;
	return im->inode[at].blob ? im->inode[at].blob->p : (const uint8_t *)"";
}

void t_image_sweep(struct t_image *im)
{
	bool *seen = t_alloc(im->ninodes), more = true;
	size_t kept = 0;

	seen[0] = true;
	while (more) {
		more = false;
		for (size_t i = 0; i < im->nslots; i++) {
			const struct t_slot *s = &im->slot[i];

			if (s->to != T_NOTHING && seen[s->dir] && !seen[s->to])
				seen[s->to] = more = true;
		}
	}
	for (size_t i = 0; i < im->nslots; i++) {
		if (im->slot[i].to == T_NOTHING || !seen[im->slot[i].dir])
			free(im->slot[i].name);
		else
			im->slot[kept++] = im->slot[i];
	}
	im->nslots = kept;
	for (size_t i = 0; i < im->ninodes; i++) {
		if (seen[i])
			continue;
		t_blob_drop(im->inode[i].blob);
		im->inode[i] = (struct t_inode){ .used = false };
	}
	free(seen);
}

/* ---- trees ---- */

static void list_below(struct t_disk_tree *tree, const struct t_image *im, uint32_t dir,
		       const char *path)
{
	bool empty = true;

	for (size_t i = 0; i < im->nslots; i++) {
		const struct t_slot *s = &im->slot[i];
		char *sub;

		if (s->dir != dir || s->to == T_NOTHING)
			continue;
		empty = false;
		sub = t_fmt("%s/%s", path, s->name);
		if (im->inode[s->to].is_dir) {
			list_below(tree, im, s->to, sub);
			free(sub);
			continue;
		}
		tree->entry = t_grow(tree->entry, (tree->n + 1) * sizeof(*tree->entry));
		tree->entry[tree->n++] = (struct t_entry){
			sub, im->inode[s->to].blob ? im->inode[s->to].blob->hash :
			ck_hash64("", 0),
		};
	}
	if (!empty || !*path)
		return;
	tree->entry = t_grow(tree->entry, (tree->n + 1) * sizeof(*tree->entry));
	tree->entry[tree->n++] = (struct t_entry){ t_fmt("%s/", path), 0 };
}

static int entry_order(const void *a, const void *b)
{
	const struct t_entry *x = a, *y = b;

	return strcmp(x->path, y->path);
}

void t_disk_tree_list(struct t_disk_tree *tree, const struct t_image *im)
{
	*tree = (struct t_disk_tree){ NULL, 0 };
	list_below(tree, im, 0, "");
	if (tree->n)
		qsort(tree->entry, tree->n, sizeof(*tree->entry), entry_order);
}

void t_disk_tree_free(struct t_disk_tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		free(tree->entry[i].path);
	free(tree->entry);
	*tree = (struct t_disk_tree){ NULL, 0 };
}

const struct t_entry *t_disk_tree_find(const struct t_disk_tree *tree, const char *path)
{
	const struct t_entry key = { .path = (char *)(uintptr_t)path };

	return tree->n ? bsearch(&key, tree->entry, tree->n, sizeof(key), entry_order) : NULL;
}

uint64_t t_image_hash(const struct t_image *im)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < im->nslots; i++) {
		const struct t_slot *s = &im->slot[i];
		uint64_t part[4] = { s->dir, s->to, ck_hash64(s->name, strlen(s->name)), 0 };

		if (s->to == T_NOTHING)
			continue;
		part[3] = im->inode[s->to].is_dir ? 1 : im->inode[s->to].blob ?
			  im->inode[s->to].blob->hash : 2;
		sum += ck_hash64(part, sizeof(part));
	}
	return sum;
}
