#include "ps_server/engine.h"
