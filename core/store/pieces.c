#include "core/store/pieces.h"

typedef struct {
    sx_ctx *cx;
    sx_pieces *pieces;
    const sx_places *places; /* of the nodes of piece 0; NULL: of no mesh */
    sx_idmap map;            /* by key */
} finder;

static bool same_key(const void *self, uint32_t id, const void *probe)
{
    const sx_pieces *pieces = self;
    return sx_key_equal(&pieces->piece[id].key, probe);
}

static uint32_t count_operations(const sx_graph *graph)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        count += graph->node[i].input_count > 0 ? 1 : 0;
    }
    return count;
}

static sx_code add(finder *f, const sx_graph *program, uint32_t *number)
{
    sx_pieces *pieces = f->pieces;
    sx_piece piece = {.program = program, .node_count = count_operations(program)};
    SX_TRY(sx_graph_key(f->cx, program, &piece.key));
    uint64_t hash = sx_hash64((sx_span){piece.key.byte, sizeof(piece.key.byte)}, 0);
    *number = sx_idmap_find(&f->map, hash, same_key, pieces, &piece.key);
    if (*number != SX_IDMAP_NONE) {
        return SX_OK;
    }
    void *array = pieces->piece;
    SX_TRY(sx_grow(f->cx, &array, &pieces->capacity, pieces->count + 1, sizeof(piece)));
    pieces->piece = array;
    *number = pieces->count++;
    pieces->piece[*number] = piece;
    return sx_idmap_put(f->cx, &f->map, hash, *number);
}

static sx_code cut(finder *f, uint32_t number)
{
    sx_ctx *cx = f->cx;
    const sx_roll *roll;
    SX_TRY(sx_roll_find(cx, f->pieces->piece[number].program, f->places, &roll));
    if (roll == NULL) {
        return SX_OK;
    }
    uint32_t *inner = SX_NEW_ARRAY(cx, uint32_t, (size_t)roll->part_count + 1);
    if (inner == NULL) {
        return cx->error.code;
    }
    for (uint32_t p = 0; p < roll->part_count; p++) {
        SX_TRY(add(f, roll->part[p].program, &inner[p]));
        if (f->pieces->piece[inner[p]].node_count >= f->pieces->piece[number].node_count) {
            return SX_OK; /* nothing is gained, and no piece may come to hold itself */
        }
    }
    f->pieces->piece[number].roll = roll;
    f->pieces->piece[number].inner = inner;
    return SX_OK;
}

sx_code sx_pieces_find(sx_ctx *cx, const sx_graph *graph, sx_pieces *pieces)
{
    SX_TRY(sx_pieces_cut(cx, graph, pieces));
    return sx_graph_key(cx, graph, &pieces->piece[0].key);
}

sx_code sx_pieces_cut(sx_ctx *cx, const sx_graph *graph, sx_pieces *pieces)
{
    return sx_pieces_find_placed(cx, graph, NULL, pieces);
}

sx_code sx_pieces_find_placed(sx_ctx *cx, const sx_graph *graph, const sx_places *places,
                              sx_pieces *pieces)
{
    SX_ASSERT(places == NULL || graph->sharding != NULL);
    finder f = {.cx = cx, .pieces = pieces, .places = places};
    uint32_t first = 0;
    uint32_t depth_max = places != NULL ? 1 : SX_PIECES_DEPTH_MAX;
    *pieces = (sx_pieces){.count = 1, .capacity = 1};
    pieces->piece = SX_NEW(cx, sx_piece);
    if (pieces->piece == NULL) {
        return cx->error.code;
    }
    *pieces->piece = (sx_piece){.program = graph, .node_count = count_operations(graph)};
    for (uint32_t depth = 0; depth < depth_max; depth++) { /* level by level */
        uint32_t end = pieces->count;
        for (uint32_t i = first; i < end; i++) {
            SX_TRY(cut(&f, i));
        }
        first = end;
    }
    return SX_OK;
}
