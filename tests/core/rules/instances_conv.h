/* instances_conv.h - attributes and operand types of windows, padding and batch_norm drawn for a wanted result
 * (part of instances.h). */
#ifndef SX_TESTS_CORE_RULES_INSTANCES_CONV_H
#define SX_TESTS_CORE_RULES_INSTANCES_CONV_H

/* One dimension of `count` places: `window` elements of it, at least 1; the operand's extent in *extent. */
static inline sx_code before_places(generator *g, int64_t count, int64_t window, bool padded,
                                    sx_attr *attr, sx_dim *extent)
{
    uint32_t d = attr->stride.count++;
    attr->low.count = attr->high.count = attr->dilation.count = d + 1;
    attr->stride.v[d] = draw(g, 3) == 0 ? 2 + draw(g, 2) : 1;
    attr->dilation.v[d] = draw(g, 4) == 0 ? 2 : 1;
    attr->low.v[d] = padded ? draw(g, 3) : 0;
    attr->high.v[d] = padded ? draw(g, 3) : 0;
    int64_t covered = (count - 1) * attr->stride.v[d] + (window - 1) * attr->dilation.v[d] + 1;
    covered += draw(g, (uint32_t)attr->stride.v[d]);
    *extent = sx_dim_of(covered - attr->low.v[d] - attr->high.v[d]);
    return extent->scale >= 1 ? SX_OK : GIVE_UP;
}

static inline sx_code before_convolution(generator *g, const sx_type *type, sx_attr *attr,
                                         sx_type *input)
{
    if (type->rank < 3 || type->dtype == SX_BOOL) {
        return GIVE_UP;
    }
    bool padded = draw(g, 2) == 0;
    int64_t outputs = type->dim[1].scale;
    int64_t groups = draw(g, 2) == 0 ? 1 : 1 + (int64_t)draw(g, (uint32_t)outputs);
    groups = outputs % groups == 0 ? groups : outputs;
    attr->present = sx_op_info_of(SX_OP_CONVOLUTION)->attrs;
    attr->groups = groups;
    input[0] = input[1] = *type;
    int64_t channels = 1 + draw(g, 3);
    input[0].dim[1] = sx_dim_of(groups * channels);
    input[1].dim[0] = sx_dim_of(outputs);
    input[1].dim[1] = sx_dim_of(channels);
    for (uint32_t d = 2; d < type->rank; d++) {
        int64_t window = 1 + draw(g, 3);
        input[1].dim[d] = sx_dim_of(window);
        SX_TRY(before_places(g, type->dim[d].scale, window, padded, attr, &input[0].dim[d]));
    }
    return SX_OK;
}

static inline sx_code before_window(generator *g, const sx_type *type, sx_attr *attr,
                                    sx_type *input)
{
    bool padded = draw(g, 2) == 0;
    attr->present = sx_op_info_of(SX_OP_REDUCE_WINDOW)->attrs;
    attr->reducer = (sx_reducer)draw(g, SX_REDUCER_COUNT);
    attr->window.count = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        bool plain = draw(g, 2) == 0;
        attr->window.v[d] = plain ? 1 : 1 + draw(g, 3);
        SX_TRY(before_places(g, type->dim[d].scale, attr->window.v[d], padded && !plain, attr,
                             &input->dim[d]));
        if (plain) { /* passed through */
            attr->stride.v[d] = attr->dilation.v[d] = 1;
            input->dim[d] = type->dim[d];
        }
    }
    return type->rank > 0 ? SX_OK : GIVE_UP;
}

static inline sx_code before_pad(generator *g, const sx_type *type, sx_attr *attr, sx_type *input)
{
    bool between = draw(g, 3) == 0;
    attr->present = sx_op_info_of(SX_OP_PAD)->attrs;
    attr->low.count = attr->high.count = attr->interior.count = type->rank;
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t step = between ? 1 + draw(g, 3) : 1;
        int64_t most = (type->dim[d].scale - 1) / step + 1;
        int64_t extent = draw(g, 2) == 0 ? most : 1 + draw(g, (uint32_t)most);
        int64_t rest = type->dim[d].scale - (extent - 1) * step - 1;
        attr->interior.v[d] = step - 1;
        attr->low.v[d] = draw(g, (uint32_t)rest + 1);
        attr->high.v[d] = rest - attr->low.v[d];
        input[0].dim[d] = sx_dim_of(extent);
    }
    input[1] = (sx_type){.dtype = type->dtype};
    return SX_OK;
}

static inline sx_code before_reverse(generator *g, const sx_type *type, sx_attr *attr)
{
    attr->present = SX_A(dims);
    for (uint32_t d = 0; d < type->rank; d++) {
        if (draw(g, 2) == 0) {
            attr->dims.v[attr->dims.count++] = d;
        }
    }
    return SX_OK;
}

static inline sx_code before_batch_norm(generator *g, const sx_type *type, sx_attr *attr,
                                        sx_type input[PARTS_MAX])
{
    if (type->rank == 0) {
        return GIVE_UP;
    }
    attr->present = SX_A(axis) | SX_A(eps);
    attr->axis = type->rank > 2 && draw(g, 3) != 0 ? 1 : draw(g, type->rank);
    attr->eps = draw(g, 2) == 0 ? 1e-5 : 0.125;
    for (uint32_t k = 1; k < PARTS_MAX; k++) {
        input[k] = (sx_type){type->dtype, 1, {type->dim[attr->axis]}};
    }
    return SX_OK;
}
#endif
