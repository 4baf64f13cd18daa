/* Writes the values of weights of a folder, whatever their format, as raw doubles: rows_driver FOLDER <asks.
 * A line asks for one weight by names as in the files:
 *   matrix ROWS COLS MODULE
 *   stack COUNT ROWS COLS PARENT CHILD        CHILD: "switch_mlp.fc1", or "experts.*.up_proj"
 * test_requant.py compares them with its own. Anything that cannot be read ends the program with its text.
 */
#include "model/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024 };

static const char *const prefixes[] = { "", NULL };
static const lw_names_options options = { .prefixes = prefixes };

static bool ask(lw_names *names, const char *line, lw_weight *out)
{
    uint32_t dims[3];
    char name[512], child[256];
    if (sscanf(line, "matrix %" SCNu32 " %" SCNu32 " %511s", &dims[1], &dims[2], name) == 3)
        return lw_names_matrix(names, out, dims[1], dims[2], "%s", name);
    const int count = sscanf(line, "stack %" SCNu32 " %" SCNu32 " %" SCNu32 " %511s %255s", &dims[0],
                             &dims[1], &dims[2], name, child);
    if (count != 5) return false;
    const bool is_each = strchr(child, '*') != NULL;
    const lw_stack_names stored = { .whole = is_each ? NULL : child, .each = is_each ? child : NULL };
    return lw_names_stack_of(names, out, dims, &stored, "%s", name);
}

static bool write_rows(const lw_weight *weight)
{
    double *row = malloc(weight->cols * sizeof *row);
    bool done = row != NULL;
    for (uint32_t m = 0; done && m < weight->stack_count; m++)
        for (uint32_t n = 0; done && n < weight->rows; n++) {
            lw_weight_row_f64(weight, m, n, row);
            done = fwrite(row, sizeof *row, weight->cols, stdout) == weight->cols;
        }
    free(row);
    return done;
}

int main(int argc, char **argv)
{
    lw_checkpoint *checkpoint = NULL;
    lw_names *names = NULL;
    lw_diag d = { "usage: rows_driver FOLDER <asks" };
    lw_status status = LW_BAD_INPUT;
    if (argc == 2) status = lw_checkpoint_open(argv[1], &checkpoint, &d);
    if (status == LW_OK) status = lw_names_make(checkpoint, &options, &names, &d);
    char line[LINE_BYTES];
    bool done = true;
    while (status == LW_OK && done && fgets(line, sizeof line, stdin) != NULL) {
        lw_weight weight;
        done = ask(names, line, &weight) && write_rows(&weight);
    }
    if (status == LW_OK) status = lw_names_finish(names, &d);
    if (status != LW_OK || !done) fprintf(stderr, "%s\n", status != LW_OK ? d.text : line);
    lw_names_free(names);
    if (checkpoint != NULL) lw_checkpoint_close(checkpoint);
    return status == LW_OK && done ? EXIT_SUCCESS : EXIT_FAILURE;
}
