#include "thrift/errors.h"
