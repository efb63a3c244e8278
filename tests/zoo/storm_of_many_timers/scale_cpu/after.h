#pragma once
// The strongest storm that one process has descriptors for.
enum { TIMERS = 900, WATCHERS = 40 };

#include "storm.h"
