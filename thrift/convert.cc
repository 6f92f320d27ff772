#include "thrift/convert.h"
