#include "common/optimizer/clip.h"
