/* en_collective.c -- see en_collective.h. */
#include "engine/comm/en_collective.h"

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_sys.h"

static bool is_joined(const struct en_collective *work)
{
	return work->out;
}

uint64_t en_collective_cut(struct en_collective *work)
{
	work->chunk = ck_zt_message(is_joined(work) ? work->size : 1, work->bytes);
	work->nchunks = work->bytes ? (work->bytes + work->chunk - 1) / work->chunk : 0;
	if (work->kind == EN_COMM_BARRIER)
		work->nchunks = 1;
	return is_joined(work) ? ck_zt_scratch(work->size, work->bytes) : 0;
}

uint64_t en_collective_bytes(const struct en_collective *work, uint64_t chunk)
{
	return ck_min_u64(work->bytes - chunk * work->chunk, work->chunk);
}

const void *en_collective_send(const struct en_collective *work, uint64_t chunk, uint32_t to)
{
	if (to == work->rank || (work->root != EN_COLLECTIVE_ALL && work->root != work->rank))
		return NULL;
	return work->send + to * work->send_step + chunk * work->chunk;
}

/* Of the other ranks, in order. */
static uint8_t *scratch_of(const struct en_collective *work, uint64_t chunk, uint32_t from)
{
	const uint32_t place = from > work->rank ? from - 1 : from;

	return work->scratch->bytes + ((chunk & 1) * (work->size - 1) + place) * work->chunk;
}

void *en_collective_recv(const struct en_collective *work, uint64_t chunk, uint32_t from)
{
	if (from == work->rank || (work->root != EN_COLLECTIVE_ALL && work->root != from))
		return NULL;
	if (is_joined(work))
		return scratch_of(work, chunk, from);
	return work->recv + from * work->recv_step + chunk * work->chunk;
}

void en_collective_finish(struct en_collective *work, uint64_t chunk)
{
	const uint64_t at = chunk * work->chunk, size = kn_num_size(work->tree.type);
	const uint64_t out_size = size == 2 ? 4 : size;

	if (!is_joined(work))
		return;
	for (uint32_t p = 0; p < work->size; p++)
		work->piece[p] = p == work->rank ? work->send + p * work->send_step + at :
				 scratch_of(work, chunk, p);
	en_tree_join(&work->tree, work->piece, work->size, en_collective_bytes(work, chunk) / size,
		     work->out + at / size * out_size, work->tree_work);
}

/* ---------------------------------------------------------------- memory */

static void scratch_drop(struct en_comm *comm, struct en_scratch **at)
{
	struct en_scratch *s = *at;

	*at = s->next;
	comm->scratch_bytes -= s->size;
	ck_free(s->bytes);
	ck_free(s);
}

static struct en_scratch *scratch_new(struct en_comm *comm, struct en_scratch **list,
				      uint64_t size)
{
	struct en_scratch *s = ck_zalloc(sizeof(*s));

	if (!s)
		return NULL;
	s->bytes = ck_alloc(size);
	if (!s->bytes) {
		ck_free(s);
		return NULL;
	}
	s->size = size;
	s->next = *list;
	*list = s;
	comm->scratch_bytes += size;
	comm->scratch_peak = ck_max_u64(comm->scratch_peak, comm->scratch_bytes);
	return s;
}

struct en_scratch *en_scratch_take(struct en_comm *comm, struct en_scratch **list, uint64_t size)
{
	struct en_scratch **at = list, *s = NULL;

	while (*at && !s) {
		if ((*at)->used)
			at = &(*at)->next;
		else if ((*at)->size >= size)
			s = *at;
		else
			scratch_drop(comm, at);
	}
	if (!s)
		s = scratch_new(comm, list, size);
	if (s)
		s->used = true;
	return s;
}

void en_scratch_free(struct en_comm *comm, struct en_scratch **list)
{
	while (*list)
		scratch_drop(comm, list);
}
