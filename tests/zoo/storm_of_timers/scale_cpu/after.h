#pragma once
// A storm of middle strength.
enum { TIMERS = 400, WATCHERS = 12 };

#include "storm.h"
