#include "common/variable_spec.h"
