/* shard_text.c - meshes and placements as text, both ways. */
#include "core/ir/check.h"
#include "core/ir/parse.h"
#include "core/ir/shard.h"

static const char *const partial[] = {"sum", "max", "min"}; /* from SX_PLACE_SUM on */

void sx_place_print(sx_shard_place place, sx_buf *text)
{
    if (place < SX_PLACE_R) {
        sx_buf_print(text, "S(%u)", place);
    } else if (place == SX_PLACE_R) {
        sx_buf_put_text(text, "R");
    } else {
        SX_ASSERT(place < SX_PLACE_COUNT);
        sx_buf_print(text, "P(%s)", partial[place - SX_PLACE_SUM]);
    }
}

void sx_places_print(const sx_sharding *sharding, const sx_places *places, sx_buf *text)
{
    bool first = true;
    sx_buf_put_text(text, "{");
    for (uint32_t a = 0; a < sharding->axis_count; a++) {
        if (places->at[a] != SX_PLACE_R) {
            sx_buf_put_text(text, first ? "" : ", ");
            sx_symbol_print(sharding->axis[a].name, text);
            sx_buf_put_text(text, " = ");
            sx_place_print(places->at[a], text);
            first = false;
        }
    }
    sx_buf_put_text(text, "}");
}

void sx_mesh_print(const sx_sharding *sharding, sx_buf *text)
{
    for (uint32_t a = 0; a < sharding->axis_count; a++) {
        sx_buf_put_text(text, a == 0 ? " mesh (" : ", ");
        sx_symbol_print(sharding->axis[a].name, text);
        sx_buf_print(text, " = %lld", (long long)sharding->axis[a].size);
    }
    sx_buf_put_text(text, ")");
}

static sx_code parse_axis_name(sx_lexer *lex, sx_span *name)
{
    *name = lex->token.text;
    if (lex->token.kind == SX_TOKEN_STRING) {
        return sx_lex_string(lex, name);
    }
    return lex->token.kind == SX_TOKEN_NAME ? sx_lex_next(lex)
                                            : sx_lex_unexpected(lex, "a mesh axis");
}

/* mesh (dp = 4, tp = 8), or nothing */
sx_code sx_parse_mesh(sx_lexer *lex, sx_graph *graph)
{
    if (!sx_lex_is_word(lex, "mesh")) {
        return SX_OK;
    }
    SX_TRY(sx_lex_next(lex));
    SX_TRY(sx_lex_mark(lex, '('));
    bool more = true;
    while (more) {
        sx_token at = lex->token;
        sx_span name;
        int64_t size;
        SX_TRY(parse_axis_name(lex, &name));
        SX_TRY(sx_lex_mark(lex, '='));
        SX_TRY(sx_lex_int(lex, &size));
        if (sx_mesh_add_axis(lex->cx, graph, name, size) != SX_OK) {
            return sx_fail_in(lex->cx, "line %u:%u", at.line, at.column);
        }
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, ')');
}

/* S(0), R, P(sum) */
static sx_code parse_place(sx_lexer *lex, sx_shard_place *place)
{
    bool sharded = sx_lex_is_word(lex, "S");
    if (sx_lex_is_word(lex, "R")) {
        *place = SX_PLACE_R;
        return sx_lex_next(lex);
    }
    if (!sharded && !sx_lex_is_word(lex, "P")) {
        return sx_lex_unexpected(lex, "S(dimension), R or P(sum, max or min)");
    }
    SX_TRY(sx_lex_next(lex));
    SX_TRY(sx_lex_mark(lex, '('));
    if (sharded) {
        sx_lexer at = *lex;
        int64_t dim;
        SX_TRY(sx_lex_int(lex, &dim));
        if (dim < 0 || dim >= SX_RANK_MAX) {
            return sx_lex_fail(&at, SX_INPUT, "dimension %lld, 0 to %d", (long long)dim,
                               SX_RANK_MAX - 1);
        }
        *place = (sx_shard_place)dim;
        return sx_lex_mark(lex, ')');
    }
    for (uint32_t i = 0; i < SX_COUNT(partial); i++) {
        if (sx_lex_is_word(lex, partial[i])) {
            *place = (sx_shard_place)(SX_PLACE_SUM + i);
            SX_TRY(sx_lex_next(lex));
            return sx_lex_mark(lex, ')');
        }
    }
    return sx_lex_unexpected(lex, "sum, max or min");
}

/* {dp = S(0), tp = R}: R along the axes that are not named */
sx_code sx_parse_places(sx_lexer *lex, const sx_graph *graph, sx_places *places)
{
    bool named[SX_MESH_AXES_MAX] = {false};
    *places = sx_places_none();
    SX_TRY(sx_lex_mark(lex, '{'));
    bool more = !sx_lex_is_mark(lex, '}');
    while (more) {
        sx_lexer at = *lex;
        sx_span name;
        SX_TRY(parse_axis_name(lex, &name));
        uint32_t axis = sx_mesh_find_axis(graph, name);
        if (axis == SX_MESH_AXES_MAX) {
            return sx_lex_fail(&at, SX_INPUT, "mesh axis \"%s\" is not declared",
                               sx_short_name(name).text);
        }
        if (named[axis]) {
            return sx_lex_fail(&at, SX_INPUT, "mesh axis \"%s\" is placed twice",
                               sx_short_name(name).text);
        }
        named[axis] = true;
        SX_TRY(sx_lex_mark(lex, '='));
        SX_TRY(parse_place(lex, &places->at[axis]));
        SX_TRY(sx_lex_accept(lex, ',', &more));
    }
    return sx_lex_mark(lex, '}');
}
