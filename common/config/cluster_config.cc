#include "common/config/cluster_config.h"
