/* Part 4 of 4 of the rules on random instances. */
#define SHARD 3u
#include "tests/core/rules/rule_shard.h"
