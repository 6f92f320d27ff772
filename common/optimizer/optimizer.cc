#include "common/optimizer/optimizer.h"
