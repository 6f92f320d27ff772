#include "common/config/job_config.h"
