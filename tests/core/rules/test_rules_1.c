/* Part 1 of 4 of the rules on random instances. */
#define SHARD 0u
#include "tests/core/rules/rule_shard.h"
