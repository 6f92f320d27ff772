#include "common/config/partitioner.h"
