#include "common/initializer.h"
