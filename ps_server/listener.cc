#include "ps_server/listener.h"
