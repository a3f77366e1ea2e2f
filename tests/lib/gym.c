#include "tests/lib/gym.h"

#include <stdio.h>
#include <string.h>

#include "client/source.h"

#define FOLDER SX_SOURCE_DIR "/tests/data/extraction-gym/"
#define FILE_BYTES_MAX ((size_t)8 << 20)

static bool read_row(const char *line, sx_gym_row *row)
{
    char cyclic[8];
    const char *comma = strchr(line, ',');
    size_t len = comma != NULL ? (size_t)(comma - line) : 0;
    if (len == 0 || len >= sizeof(row->file)) {
        return false;
    }
    memcpy(row->file, line, len);
    row->file[len] = '\0';
    return sscanf(comma, ",%u,%u,%u,%7[a-z],%lf,%lf,%lf,%u", &row->nodes, &row->classes,
                  &row->roots, cyclic, &row->tree_cost, &row->greedy_cost, &row->best_cost,
                  &row->proofs) == 8;
}

sx_code sx_gym_rows(sx_ctx *cx, sx_gym_row row[SX_GYM_FILES])
{
    char line[512];
    uint32_t count = 0;
    FILE *file = fopen(FOLDER "best.csv", "re");
    if (file == NULL) {
        return SX_FAIL(cx, SX_INPUT, "%sbest.csv cannot be read", FOLDER);
    }
    bool ok = fgets(line, sizeof(line), file) != NULL;
    while (ok && fgets(line, sizeof(line), file) != NULL) {
        ok = count < SX_GYM_FILES && read_row(line, &row[count]);
        count++;
    }
    (void)fclose(file);
    return ok && count == SX_GYM_FILES
               ? SX_OK
               : SX_FAIL(cx, SX_INPUT, "best.csv: row %u of %u is not right", count, SX_GYM_FILES);
}

sx_code sx_gym_load(sx_ctx *cx, const char *file, sx_buf *text, sxc_egraph *egraph)
{
    char path[512];
    sx_buf_init(text, FILE_BYTES_MAX);
    (void)snprintf(path, sizeof(path), "%s%s", FOLDER, file);
    SX_TRY(sxc_read_text(cx, path, text));
    return sxc_egraph_parse(cx, sx_buf_span(text), egraph);
}
