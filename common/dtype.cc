#include "common/dtype.h"
