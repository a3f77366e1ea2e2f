/* parse.h - inside of the parser: what parse.c and parse_attr.c share. Private to core/ir. */
#ifndef SX_CORE_IR_PARSE_H
#define SX_CORE_IR_PARSE_H
#include "core/ir/lex.h"
#include "core/ir/shard.h"

/* f32[batch, 784] */
sx_code sx_parse_type(sx_lexer *lex, sx_graph *graph, sx_type *type);
/* 2*batch + 1: an extent, a stride or an offset; a sum that is new gets a row among the symbols */
sx_code sx_parse_dim(sx_lexer *lex, sx_graph *graph, sx_dim *dim);
/* [2*batch, 1]: extents or strides */
sx_code sx_parse_dims(sx_lexer *lex, sx_graph *graph, sx_dim dim[SX_RANK_MAX], uint32_t *count);
/* A stride, which may be the product of two symbols: "4*(batch*seq)"; and a list of strides. */
sx_code sx_parse_step(sx_lexer *lex, sx_graph *graph, sx_dim *dim);
sx_code sx_parse_steps(sx_lexer *lex, sx_graph *graph, sx_dim dim[SX_RANK_MAX], uint32_t *count);
/* {axis = 1, ...} or nothing. The value of `data` needs the type that follows: `data` is set to read it then. */
sx_code sx_parse_attrs(sx_lexer *lex, sx_graph *graph, sx_op op, sx_attr *attr, sx_lexer *data);
/* Elements of a constant of this type: a number fills it, a list or a string of hex digits has all of them. */
sx_code sx_parse_data(sx_lexer *lex, const sx_type *type, sx_span *data);
/* Is the attribute `type` of the operation its result type, written behind the colon? */
bool sx_parse_type_is_result(sx_op op);
/* parse.c: graph { .. }, over the symbols of `graph`, the one around it */
sx_code sx_parse_program(sx_lexer *lex, sx_graph *graph, const sx_program **program);
/* shard_text.c: mesh (dp = 4, tp = 8), or nothing; {dp = S(0), tp = R} */
sx_code sx_parse_mesh(sx_lexer *lex, sx_graph *graph);
sx_code sx_parse_places(sx_lexer *lex, const sx_graph *graph, sx_places *places);
#endif
