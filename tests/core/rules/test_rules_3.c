/* Part 3 of 4 of the rules on random instances. */
#define SHARD 2u
#include "tests/core/rules/rule_shard.h"
