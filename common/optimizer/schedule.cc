#include "common/optimizer/schedule.h"
