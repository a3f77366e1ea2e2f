#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/bench.h"

typedef struct {
    const char *name;
    const char *help;
    int (*run)(const sx_bench_options *options);
} bench;
static const bench table[] = {
    {"ablation",
     "what level 1 is worth: as it came, fused only, all rules, a long search, less one group",
     sx_bench_ablation},
    {"adamw", "a step of AdamW as one kernel with three results, against a kernel for each",
     sx_bench_adamw},
    {"attention",
     "attention in steps as one kernel, against the same program without the rule, and "
     "onnxruntime; with its "
     "gradients by recomputation, against stored scores",
     sx_bench_attention},
    {"backward", "a block with its gradients for all weights, against JAX with the same threads",
     sx_bench_backward},
    {"call", "a run of a tiny module through the library, in one call and in several",
     sx_bench_call},
    {"compile",
     "cold latency by stage, verified and not; vit_b_16 without slices (head on the mean of "
     "tokens)",
     sx_bench_compile},
    {"interval", "one module for an interval beside those for single values, at several of them",
     sx_bench_interval},
    {"jax", "symplex.jax.jit against jax.jit: a call of a tiny function, models", sx_bench_jax},
    {"legality", "proof of each emitted kernel of a model, and isl on its schedule",
     sx_bench_legality},
    {"egraph",
     "the e-graph engine on plain terms: math-micro, ac, backoff; egglog beside it; transformer, "
     "snapshot",
     sx_bench_egraph},
    {"emulate", "the emulator of machine code: lanes and instructions a second of processor time",
     sx_bench_emulate},
    {"encoder", "one run of the encoder block against onnxruntime with the same threads",
     sx_bench_encoder},
    {"extract", "the public extraction collection, 10 s a file: costs, bounds, proofs, times",
     sx_bench_extract},
    {"first",
     "the first call of 12 layers in a new process, the module at a daemon: symplex.jit, "
     "compile_onnx",
     sx_bench_first},
    {"hit", "a cached hit through the daemon against a bare epoll echo of the same sizes",
     sx_bench_hit},
    {"ptx",
     "kernels for GPUs, without one: the interpreter of PTX, the assembler, predicted times of "
     "shapes",
     sx_bench_ptx},
    {"rows", "rows with what is known of them as one kernel, against a kernel for each result",
     sx_bench_rows},
    {"search", "the lanes of a long search, step by step: objective and bound against fuel",
     sx_bench_search},
    {"sort", "rows in order, against NumPy", sx_bench_sort},
    {"store", "an artefact of another cache, got from the daemon and put there, beside Redis",
     sx_bench_store},
    {"torch", "torch.compile with symplex against Inductor: a call of a tiny function, models",
     sx_bench_torch},
};

uint64_t sx_bench_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double sx_bench_median(double *sample, uint32_t count)
{
    SX_ASSERT(count > 0);
    qsort(sample, count, sizeof(*sample), compare_doubles);
    return sample[count / 2];
}

static bool case_was_met;

bool sx_bench_wants(const sx_bench_options *options, const char *case_name)
{
    if (options->list) {
        printf("      %s\n", case_name);
        return false;
    }
    bool wanted = options->case_name == NULL || strcmp(options->case_name, case_name) == 0;
    case_was_met = case_was_met || wanted;
    return wanted;
}

void sx_bench_put(const sx_bench_options *options, const sx_bench_row *row)
{
    bool peer = row->peer != NULL;
    if (!isfinite(row->value) || row->value < 0 || (peer && !(row->peer_value > 0))) {
        (void)fprintf(stderr, "symplex-bench: %s %s %s: %g is no measurement\n", row->bench,
                      row->case_name, row->metric, row->value);
        exit(6);
    }
    double ratio = peer ? row->value / row->peer_value : 0;
    if (options->json) {
        printf("{\"schema\": \"symplex-bench 1\", \"bench\": \"%s\", \"case\": \"%s\", \"metric\": "
               "\"%s\", \"value\": %.12g, "
               "\"unit\": \"%s\", ",
               row->bench, row->case_name, row->metric, row->value, row->unit);
        if (peer) {
            printf("\"peer\": \"%s\", \"peer_value\": %.6g, \"ratio\": %.4g}\n", row->peer,
                   row->peer_value, ratio);
        } else {
            printf("\"peer\": null, \"peer_value\": null, \"ratio\": null}\n");
        }
    } else if (peer) {
        printf("%-8s  %-22s  %-18s  %12.4g %-5s  %12.4g  %6.3f  %s\n", row->bench, row->case_name,
               row->metric, row->value, row->unit, row->peer_value, ratio, row->peer);
    } else {
        printf("%-8s  %-22s  %-18s  %12.4g %-5s\n", row->bench, row->case_name, row->metric,
               row->value, row->unit);
    }
    (void)fflush(stdout);
}

static int usage(FILE *to, int status)
{
    (void)fprintf(to, "usage: symplex-bench NAME [--case C] [--threads N] [--rounds N] [--json]\n  "
                      "       [--iterations N] [--leaves N] [--layers N] [--instructions] "
                      "[--no-peer] [--no-proofs] [--stamps]    (egraph)\n"
                      "       [--steps N] [--fuel N]    (ablation, search)    "
                      "[--program NAME|FILE]    (search)\n"
                      "       [--target DEVICE,DEVICE] [--shape PREFIX] [--plant below|spill] "
                      "[--shapes FILE] [--modules FOLDER]    (ptx)\n"
                      "       symplex-bench list\n");
    for (uint32_t i = 0; i < SX_COUNT(table); i++) {
        (void)fprintf(to, "  %-10s %s\n", table[i].name, table[i].help);
    }
    return status;
}

/* Every benchmark with its cases. */
static int list_cases(sx_bench_options *options)
{
    int status = 0;
    options->list = true;
    for (uint32_t i = 0; i < SX_COUNT(table) && status == 0; i++) {
        printf("  %-10s %s\n", table[i].name, table[i].help);
        status = table[i].run(options);
    }
    return status;
}

static uint64_t number_to(const char *text, uint64_t most)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || end == text || value > most) {
        (void)fprintf(stderr, "symplex-bench: %s is not a number from 0 to %llu\n", text,
                      (unsigned long long)most);
        exit(2);
    }
    return value;
}

static uint32_t number(const char *text)
{
    return (uint32_t)number_to(text, 1000000);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"case", required_argument, NULL, 'c'},    {"threads", required_argument, NULL, 't'},
        {"rounds", required_argument, NULL, 'r'},  {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {"iterations", required_argument, NULL, 'i'},
        {"leaves", required_argument, NULL, 'l'},  {"instructions", no_argument, NULL, 'n'},
        {"no-proofs", no_argument, NULL, 'p'},     {"no-peer", no_argument, NULL, 'q'},
        {"stamps", no_argument, NULL, 's'},        {"inner", no_argument, NULL, 'x'},
        {"layers", required_argument, NULL, 'd'},  {"program", required_argument, NULL, 'g'},
        {"steps", required_argument, NULL, 'm'},   {"fuel", required_argument, NULL, 'f'},
        {"target", required_argument, NULL, 'k'},  {"shapes", required_argument, NULL, 'a'},
        {"modules", required_argument, NULL, 'b'}, {"plant", required_argument, NULL, 'o'},
        {"shape", required_argument, NULL, 'e'},   {NULL, 0, NULL, 0}};
    sx_bench_options options = {.rounds = 15};
    int choice;
    while ((choice = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        switch (choice) {
        case 'c': options.case_name = optarg; break;
        case 't': options.threads = number(optarg); break;
        case 'r': options.rounds = number(optarg) > 0 ? number(optarg) : 1; break;
        case 'j': options.json = true; break;
        case 'i': options.iterations = number(optarg); break;
        case 'l': options.leaves = number(optarg); break;
        case 'd': options.layers = number(optarg); break;
        case 'n': options.instructions = true; break;
        case 'p': options.no_proofs = true; break;
        case 'q': options.no_peer = true; break;
        case 's': options.stamps = true; break;
        case 'x': options.inner = true; break;
        case 'e': options.shape = optarg; break;
        case 'k': options.target = optarg; break;
        case 'o': options.plant = optarg; break;
        case 'a': options.shapes = optarg; break;
        case 'b': options.modules = optarg; break;
        case 'g': options.program = optarg; break;
        case 'm': options.steps = number(optarg); break;
        case 'f': options.fuel = number_to(optarg, UINT64_C(1000000000000)); break;
        case 'h': return usage(stdout, 0);
        default: return usage(stderr, 2);
        }
    }
    if (optind + 1 != argc) {
        return usage(stderr, 2);
    }
    if (strcmp(argv[optind], "list") == 0) {
        return list_cases(&options);
    }
    for (uint32_t i = 0; i < SX_COUNT(table); i++) {
        if (strcmp(argv[optind], table[i].name) == 0) {
            int status = table[i].run(&options);
            if (status == 0 && options.case_name != NULL && !case_was_met && !options.inner) {
                (void)fprintf(stderr, "symplex-bench: %s has no case %s that runs here\n",
                              table[i].name, options.case_name);
                return 2;
            }
            return status;
        }
    }
    (void)fprintf(stderr, "symplex-bench: no benchmark named %s\n", argv[optind]);
    return 2;
}
