/* Reading certificates, and the parts that are put together from others. */
#include <string.h>

#include "core/ir/extent.h"
#include "core/proof/certificate_eval.h"
#include "core/proof/certificate_read.h"

/* ---- words and lines ---- */

sx_code sx_proof_malformed(const sx_proof_reader *r, const char *expected)
{
    return SX_FAIL(r->cx, SX_INPUT, "certificate: %zu bytes before the end: expected %s",
                   (size_t)(r->end - r->at), expected);
}

sx_code sx_proof_line(sx_proof_reader *r, sx_span *line)
{
    const uint8_t *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    if (newline == NULL) {
        return sx_proof_malformed(r, "a line");
    }
    *line = (sx_span){r->at, (size_t)(newline - r->at)};
    r->at = newline + 1;
    return SX_OK;
}

sx_span sx_proof_word(sx_span *line)
{
    sx_span word = {line->ptr, 0};
    while (word.len < line->len && word.ptr[word.len] != ' ') {
        word.len++;
    }
    size_t skip = word.len + (word.len < line->len ? 1 : 0);
    *line = (sx_span){line->ptr + skip, line->len - skip};
    return word;
}

bool sx_proof_number(sx_span *line, uint64_t max, uint64_t *number)
{
    sx_span word = sx_proof_word(line);
    *number = 0;
    for (size_t i = 0; i < word.len; i++) {
        uint8_t digit = (uint8_t)(word.ptr[i] - '0');
        if (digit > 9 || *number > max) {
            return false;
        }
        *number = 10 * *number + digit;
    }
    return word.len > 0 && *number <= max;
}

sx_code sx_proof_count(sx_proof_reader *r, const char *name, uint64_t max, uint32_t *count)
{
    sx_span line = {0};
    uint64_t number;
    SX_TRY(sx_proof_line(r, &line));
    if (!sx_span_is(sx_proof_word(&line), name) || !sx_proof_number(&line, max, &number) ||
        line.len > 0) {
        return sx_proof_malformed(r, name);
    }
    *count = (uint32_t)number;
    return SX_OK;
}

sx_code sx_proof_program_text(sx_proof_reader *r, const char *name, sx_graph **graph)
{
    uint32_t size;
    SX_TRY(sx_proof_count(r, name, UINT32_MAX, &size));
    if (size > (size_t)(r->end - r->at)) {
        return sx_proof_malformed(r, "a program of so many bytes");
    }
    SX_TRY(sx_graph_parse(r->cx, (sx_span){r->at, size}, graph));
    r->at += size;
    return sx_graph_check(r->cx, *graph);
}

/* ---- divided parts ---- */

typedef struct {
    const sx_graph *graph[2]; /* as it went in, as it came out */
    bool proved;              /* by steps of its own */
} part;

typedef struct {
    sx_node_id *value; /* outputs of the part used */
    uint32_t count;
} used;

typedef struct {
    sx_proof_reader *reader;
    const part *part; /* those before */
    uint32_t part_count;
    const sx_graph *from; /* the program to be made */
    sx_graph *made;
    sx_node_id *parameter;
    uint32_t parameter_count;
    used *use;
    uint32_t use_count;
} assembler;

static sx_code start(assembler *a)
{
    sx_ctx *cx = a->reader->cx;
    const sx_graph *from = a->from;
    SX_TRY(sx_graph_make(cx, from->name, NULL, &a->made));
    SX_TRY(sx_graph_copy_symbols(cx, from->symbol, from->symbol_count, a->made));
    a->parameter = SX_NEW_ARRAY(cx, sx_node_id, from->node_count + 1);
    if (a->parameter == NULL) {
        return cx->error.code;
    }
    for (uint32_t i = 0; i < from->node_count; i++) {
        sx_attr attr = *sx_graph_attr(from, &from->node[i]);
        if (from->node[i].op == SX_OP_PARAMETER) {
            SX_TRY(sx_graph_add(cx, a->made, SX_OP_PARAMETER, &attr, NULL, 0,
                                &a->parameter[a->parameter_count++]));
        }
    }
    return SX_OK;
}

static sx_code read_value(assembler *a, sx_span *line, sx_node_id *value)
{
    sx_span head = *line;
    uint64_t use, index;
    if (sx_span_is(sx_proof_word(&head), "parameter")) {
        *line = head;
        if (!sx_proof_number(line, UINT32_MAX, &index) || index >= a->parameter_count) {
            return sx_proof_malformed(a->reader, "a parameter of the program above");
        }
        *value = a->parameter[index];
        return SX_OK;
    }
    if (!sx_proof_number(line, UINT32_MAX, &use) || use >= a->use_count ||
        !sx_proof_number(line, UINT32_MAX, &index) || index >= a->use[use].count) {
        return sx_proof_malformed(a->reader, "an output of an earlier use above");
    }
    *value = a->use[use].value[index];
    return SX_OK;
}

static bool same_symbols(const sx_graph *a, const sx_graph *b)
{
    return a->symbol_count == b->symbol_count &&
           sx_symbols_equal(a->symbol, b->symbol, a->symbol_count, true);
}

/* "use PART VALUE..": the nodes of the part again, over these values. */
static sx_code read_use(assembler *a, uint32_t side, sx_span line)
{
    sx_ctx *cx = a->reader->cx;
    uint64_t number;
    if (!sx_span_is(sx_proof_word(&line), "use") || a->part_count == 0 ||
        !sx_proof_number(&line, a->part_count - 1, &number)) {
        return sx_proof_malformed(a->reader, "the use of an earlier part above");
    }
    const sx_graph *program = a->part[number].graph[side];
    sx_node_id *made = SX_NEW_ARRAY(cx, sx_node_id, program->node_count + 1);
    used *use = &a->use[a->use_count];
    use->value = SX_NEW_ARRAY(cx, sx_node_id, program->output_count + 1);
    if (made == NULL || use->value == NULL) {
        return cx->error.code;
    }
    if (!same_symbols(program, a->made)) {
        return sx_proof_malformed(a->reader, "a part of the same symbols above");
    }
    SX_TRY(sx_spend(cx, program->node_count));
    for (uint32_t i = 0; i < program->node_count; i++) {
        const sx_node *node = &program->node[i];
        sx_node_id input[SX_INPUTS_MAX];
        sx_attr attr = *sx_graph_attr(program, node);
        if (node->op == SX_OP_PARAMETER) {
            SX_TRY(read_value(a, &line, &made[i]));
            if (!sx_type_equal(&sx_graph_node(a->made, made[i])->type, &node->type)) {
                return sx_proof_malformed(a->reader, "a value of the type the part was proved for");
            }
            continue;
        }
        for (uint32_t k = 0; k < node->input_count; k++) {
            input[k] = made[sx_graph_input(program, node, k).i];
        }
        SX_TRY(sx_graph_add(cx, a->made, node->op, &attr, input, node->input_count, &made[i]));
    }
    for (uint32_t i = 0; i < program->output_count; i++) {
        use->value[i] = made[program->output[i].node.i];
    }
    use->count = program->output_count;
    a->use_count++;
    return line.len == 0 ? SX_OK : sx_proof_malformed(a->reader, "the end of the line above");
}

/* The program that the pieces make, of what went in (side 0) or of what came out (1). */
static sx_code assemble(sx_proof_reader *r, const part *parts, uint32_t part_count,
                        const sx_graph *from, uint32_t side, sx_graph **made)
{
    assembler a = {.reader = r, .part = parts, .part_count = part_count, .from = from};
    uint32_t count;
    sx_span line = {0};
    SX_TRY(start(&a));
    SX_TRY(sx_proof_count(r, "uses", SX_CERTIFICATE_STEPS_MAX, &count));
    a.use = SX_NEW_ARRAY(r->cx, used, count + 1);
    if (a.use == NULL) {
        return r->cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(sx_proof_line(r, &line));
        SX_TRY(read_use(&a, side, line));
    }
    SX_TRY(sx_proof_line(r, &line));
    if (!sx_span_is(sx_proof_word(&line), "outputs")) {
        return sx_proof_malformed(r, "outputs");
    }
    for (uint32_t i = 0; i < from->output_count; i++) {
        sx_node_id value;
        SX_TRY(read_value(&a, &line, &value));
        SX_TRY(sx_graph_add_output(r->cx, a.made, from->output[i].name, value));
    }
    *made = a.made;
    return line.len == 0 ? SX_OK : sx_proof_malformed(r, "the end of the line above");
}

static sx_code same_program(sx_ctx *cx, const sx_graph *a, const sx_graph *b, bool *same)
{
    sx_key x, y;
    SX_TRY(sx_graph_key(cx, a, &x));
    SX_TRY(sx_graph_key(cx, b, &y));
    *same = sx_key_equal(&x, &y);
    return SX_OK;
}

static sx_code check_divided(sx_proof_reader *r, const part *parts, uint32_t part_count,
                             sx_graph **input, sx_graph **output)
{
    SX_TRY(sx_proof_program_text(r, "input", input));
    SX_TRY(sx_proof_program_text(r, "output", output));
    const uint8_t *uses = r->at;
    for (uint32_t side = 0; side < 2; side++) {
        sx_graph *made = NULL;
        bool same;
        r->at = uses;
        SX_TRY(assemble(r, parts, part_count, *input, side, &made));
        SX_TRY(same_program(r->cx, side == 0 ? *input : *output, made, &same));
        if (!same) {
            return SX_FAIL(r->cx, SX_INPUT, "certificate: part %u: its pieces do not make its %s",
                           part_count, side == 0 ? "input" : "output");
        }
    }
    return SX_OK;
}

/* "A B": what came out of A went into B. */
static sx_code check_chained(sx_proof_reader *r, const part *parts, uint32_t part_count,
                             sx_span line, part *chained)
{
    uint64_t first, second;
    bool same;
    if (part_count == 0 || !sx_proof_number(&line, part_count - 1, &first) ||
        !sx_proof_number(&line, part_count - 1, &second) || line.len > 0) {
        return sx_proof_malformed(r, "two earlier parts above");
    }
    SX_TRY(same_program(r->cx, parts[first].graph[1], parts[second].graph[0], &same));
    *chained = (part){{parts[first].graph[0], parts[second].graph[1]}, false};
    return same ? SX_OK
                : SX_FAIL(r->cx, SX_INPUT,
                          "certificate: part %u: part %u does not begin where %u ends", part_count,
                          (unsigned)second, (unsigned)first);
}

static sx_code read_part(sx_proof_reader *r, part *parts, uint32_t index,
                         sx_certificate *certificate)
{
    sx_graph *graph[2] = {NULL, NULL};
    sx_span line = {0};
    SX_TRY(sx_proof_line(r, &line));
    sx_span kind = line;
    if (!sx_span_is(sx_proof_word(&kind), "part")) {
        return sx_proof_malformed(r, "part above");
    }
    sx_span rest = kind;
    sx_span word = sx_proof_word(&rest);
    if (sx_span_is(word, "chained")) {
        return check_chained(r, parts, index, rest, &parts[index]);
    }
    bool proved = sx_span_is(kind, "proved");
    if (proved) {
        SX_TRY(sx_proof_check_part(r, certificate, &graph[0], &graph[1]));
    } else if (sx_span_is(kind, "divided")) {
        SX_TRY(check_divided(r, parts, index, &graph[0], &graph[1]));
    } else {
        return sx_proof_malformed(r, "proved, divided or chained above");
    }
    parts[index] = (part){{graph[0], graph[1]}, proved};
    return SX_OK;
}

/* The whole program, put together from its parts: a proved one was evaluated when it was read. */
static sx_code evaluate_whole(sx_proof_reader *r, const part *whole, bool proved,
                              sx_certificate *certificate)
{
    if (proved || (r->asked & SX_PROOF_VALUES) == 0) {
        return SX_OK;
    }
    return sx_proof_evaluate(r->cx, whole->graph[0], whole->graph[1], NULL, NULL, 0,
                             &certificate->evaluation);
}

static sx_code read_parts(sx_proof_reader *r, sx_certificate *certificate)
{
    uint32_t count;
    SX_TRY(sx_proof_count(r, "parts", SX_CERTIFICATE_PARTS_MAX, &count));
    part *parts = SX_NEW_ARRAY(r->cx, part, count + 1);
    if (parts == NULL) {
        return r->cx->error.code;
    }
    for (uint32_t i = 0; i < count; i++) {
        SX_TRY(read_part(r, parts, i, certificate));
    }
    if (count == 0) {
        return sx_proof_malformed(r, "a part");
    }
    certificate->input = parts[count - 1].graph[0];
    certificate->output = parts[count - 1].graph[1];
    certificate->part_count = count;
    return evaluate_whole(r, &parts[count - 1], parts[count - 1].proved, certificate);
}

sx_code sx_certificate_check(sx_ctx *cx, sx_span text, sx_certificate *certificate)
{
    return sx_proof_read(cx, text, SX_PROOF_STEPS | SX_PROOF_VALUES, SX_PROOF_WORK, certificate);
}

sx_code sx_proof_read(sx_ctx *cx, sx_span text, uint32_t asked, uint64_t work,
                      sx_certificate *certificate)
{
    static const uint8_t nothing[1];
    const uint8_t *begin = text.ptr != NULL ? text.ptr : nothing; /* of an empty file */
    sx_proof_reader reader = {cx, begin, begin + text.len, asked};
    sx_span line = {0};
    *certificate = (sx_certificate){.evaluation.work = work};
    SX_TRY(sx_proof_line(&reader, &line));
    if (!sx_span_is(line, "symplex-proof 1")) {
        return SX_FAIL(cx, SX_INPUT, "certificate: does not begin with 'symplex-proof 1'");
    }
    SX_TRY(read_parts(&reader, certificate));
    SX_TRY(sx_proof_line(&reader, &line));
    return sx_span_is(line, "end") && reader.at == reader.end ? SX_OK
                                                              : sx_proof_malformed(&reader, "end");
}
