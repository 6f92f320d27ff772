#include "thrift/payload.h"
