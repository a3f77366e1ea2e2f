/* Part 2 of 4 of the rules on random instances. */
#define SHARD 1u
#include "tests/core/rules/rule_shard.h"
