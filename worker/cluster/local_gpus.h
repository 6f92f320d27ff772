// Counts the GPUs that this process may use (common/local_gpus.h).
#pragma once

#include "common/local_gpus.h"
