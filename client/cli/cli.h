/* cli.h - what the commands of symplex-client share: parsed options, printing, exit codes. Results go to stdout;
 * messages to people go to stderr. */
#ifndef SX_CLIENT_CLI_CLI_H
#define SX_CLIENT_CLI_CLI_H
#include "client/compile.h"
#include "client/connection.h"
#include "client/file.h"
#include "client/json.h"
#include "client/spawn.h"
#include "client/cli/progress.h"

typedef enum {
#define SXC_OPTION(enumerator, name, letter, argument, repeated, help) SXC_##enumerator,
#include "client/cli/options.def"
#undef SXC_OPTION
    SXC_OPTION_COUNT
} sxc_option;

#define SXC_REPEAT_MAX 256
typedef struct {
    const char *value[SXC_REPEAT_MAX];
    uint32_t count;
} sxc_values;
typedef struct {
    sx_ctx *cx;
    /* An option was given if its count is above 0. A flag has the empty text as its value. */
    sxc_values option[SXC_OPTION_COUNT];
    const char *argument[8];
    uint32_t argument_count;
    /* When the program began, since people wait from then on. */
    uint64_t start_us;
    sxc_progress progress;
    bool json;
    /* The object or the text of the command is out. An error after that goes to stderr alone. */
    bool printed;
} sxc_cli;

/* A command returns SX_OK, or a code with cx->error set; main prints the error and turns the code into the
 * exit status. */
typedef sx_code (*sxc_command_function)(sxc_cli *cli);
__extension__ typedef unsigned __int128
    sxc_option_set; /* of 1 << sxc_option; there are more than 64 */
typedef struct {
    const char *name, *arguments, *help;
    sxc_command_function run;
    /* How many arguments it takes. */
    uint32_t fewest, most;
    /* The options that it knows. */
    sxc_option_set options;
} sxc_command;
extern const sxc_command sxc_commands[];
extern const uint32_t sxc_command_count;
typedef struct {
    const char *name, *argument, *help;
    char letter;
    bool repeated;
} sxc_option_row;
extern const sxc_option_row sxc_options[SXC_OPTION_COUNT];

#define SXC_COMMAND(name, function, arguments, fewest, most, options, help) \
    sx_code function(sxc_cli *cli);
#include "client/cli/commands.def"
#undef SXC_COMMAND

/* The command named by the words argv[1] and perhaps argv[2]; *words is how many it took. NULL: none. */
const sxc_command *sxc_find_command(int argc, char *const *argv, int *words);
/* Fails with SX_USAGE; the text names the command that is spelled most like the given one, or the words that may stand
 * behind it. */
sx_code sxc_unknown_command(sx_ctx *cx, const char *given);
/* Is it a command of two words, the first of which is `word`? */
bool sxc_begins_with_word(const sxc_command *command, const char *word);
/* Do commands of two words begin with this one, as `cache ls` does with "cache"? */
bool sxc_has_group(const char *word);
void sxc_print_command_help(const sxc_command *command);
sx_code sxc_print_overview(sxc_cli *cli);
/* The commands that begin with `word`. */
sx_code sxc_print_group(sxc_cli *cli, const char *word);

static inline bool sxc_given(const sxc_cli *cli, sxc_option option)
{
    return cli->option[option].count > 0;
}
/* The last value given, or NULL. */
static inline const char *sxc_value(const sxc_cli *cli, sxc_option option)
{
    const sxc_values *values = &cli->option[option];
    return values->count > 0 ? values->value[values->count - 1] : NULL;
}
/* A whole number in [low, high]; `fallback` if the option is not given. */
sx_code sxc_number(const sxc_cli *cli, sxc_option option, int64_t low, int64_t high,
                   int64_t fallback, int64_t *value);
sx_code sxc_parse_i64(sx_ctx *cx, const char *what, sx_span text, int64_t low, int64_t high,
                      int64_t *value);

/* cmd_worker.c: this very program, which compiles where no daemon does. */
extern const sxc_worker sxc_own_worker;

/* ---- cmd_service.c ---- */

/* How long a call may take that the daemon answers from its tables. */
#define SXC_ANSWER_MS 30000
/* Connects to the daemon of --socket. */
sx_code sxc_reach(sxc_cli *cli, sxc_connection **connection);
/* Makes one call to that daemon, and prints the reply: with --json as it came, else by `print`. */
typedef sx_code (*sxc_printer)(sxc_cli *cli, const void *reply, sx_buf *out);
sx_code sxc_ask(sxc_cli *cli, sx_method method, const void *args, int timeout_ms,
                sxc_printer print);
/* Reads a key: all of its digits, or so many that only one stored key begins with them. */
sx_code sxc_read_key(sxc_cli *cli, sxc_connection *connection, const char *given, sx_key *key);

/* Prints the bytes on stdout, and a newline if they do not end with one. */
sx_code sxc_put(sxc_cli *cli, sx_buf *text);

/* A figure for people, in the largest unit of which there is at least one: "3.1 MiB", "8.64 ms". */
void sxc_human_bytes(double bytes, char text[32]);
void sxc_human_ns(double ns, char text[32]);
#endif
