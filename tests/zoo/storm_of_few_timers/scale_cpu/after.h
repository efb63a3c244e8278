#pragma once
// A weak storm: what a margin might let through.
enum { TIMERS = 60, WATCHERS = 4 };

#include "storm.h"
