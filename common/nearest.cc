#include "common/nearest.h"
