"""The paper's own numbers (Kiyohara, Johns and Li, NeurIPS 2025), to print beside ours."""

TIMES = (0.25, 0.5, 0.75, 1.0)
HORIZONS = (1.0, 0.5, 0.25)

# Table 1: KL (mean, std) at t = .25, .5, .75, 1 and kFLOPs a sample.
LORENZ_KL = {
    "Latent SDE": ((2.1, 0.9), (1.8, 0.1), (0.9, 0.3), (1.5, 0.5)),
    "Neural LSDE": ((1.3, 0.4), (7.2, 1.4), (74.5, 24.6), (53.1, 29.3)),
    "Neural GSDE": ((1.2, 0.4), (3.9, 0.3), (20.2, 7.6), (14.1, 8.4)),
    "Neural LNSDE": ((1.7, 0.4), (4.6, 0.7), (57.3, 16.4), (44.6, 23.4)),
    "SDE matching, Δt = 0.0001": ((4.3, 0.7), (5.3, 1.0), (3.4, 0.8), (3.8, 1.0)),
    "SDE matching, Δt = 0.01": ((6.3, 0.4), (11.7, 0.5), (7.9, 0.3), (6.0, 0.3)),
    "NSF, H_pred = 1": ((0.8, 0.7), (1.3, 0.1), (0.6, 0.3), (0.2, 0.6)),
    "NSF, H_pred = 0.5": ((2.4, 1.9), (1.3, 0.1), (1.0, 0.4), (1.7, 1.1)),
    "NSF, H_pred = 0.25": ((1.2, 0.7), (1.2, 0.1), (0.8, 0.4), (1.3, 0.8)),
}
LORENZ_KFLOPS = {
    "Latent SDE": (959, 1917, 2839, 3760),
    "Neural LSDE": (1712, 3416, 5057, 6699),
    "Neural GSDE": (1925, 3848, 5698, 7548),
    "Neural LNSDE": (1925, 3848, 5698, 7548),
    "SDE matching, Δt = 0.0001": (184_394, 368_787, 553_034, 737_354),
    "SDE matching, Δt = 0.01": (1917, 3834, 5677, 7520),
    "NSF, H_pred = 1": (53, 53, 53, 53),
    "NSF, H_pred = 0.5": (53, 53, 105, 105),
    "NSF, H_pred = 0.25": (53, 105, 156, 208),
}
NSF_ROW = {1.0: "NSF, H_pred = 1", 0.5: "NSF, H_pred = 0.5", 0.25: "NSF, H_pred = 0.25"}

# F.1, missing data: KL (mean, std) in one step at t = .5 and t = 1.
MISSING_BY_WEIGHT = {
    0.0: ((7.9, 0.2), (22.9, 1.8)),
    0.001: ((3.0, 0.2), (4.5, 0.9)),
    0.01: ((1.7, 0.1), (2.1, 0.6)),
    0.4: ((1.2, 0.1), (1.2, 1.0)),
    0.8: ((1.3, 0.2), (1.3, 0.6)),
}
MISSING_BY_BRIDGE_STEPS = {
    0: ((1.1, 0.1), (1.8, 1.2)),
    1: ((1.1, 0.1), (1.7, 0.6)),
    5: ((1.2, 0.1), (1.4, 0.6)),
}
MISSING_BY_DIRECTION = {
    "1→2 only": ((1.1, 0.1), (1.4, 0.6)),
    "2→1 only": ((1.2, 0.1), (1.4, 0.7)),
    "both": ((1.2, 0.1), (1.4, 0.6)),
}

# Motion capture: test MSE in either set-up, as printed (± is a 95 % interval).
MOCAP_MSE = {
    1: {
        "npODE": "22.96",
        "Neural ODE": "22.49 ± 0.88",
        "ODE2VAE-KL": "8.09 ± 1.95",
        "Latent ODE": "5.98 ± 0.28",
        "Latent SDE": "12.91 ± 2.90",
        "Latent Approx SDE": "7.55 ± 0.05",
        "ARCTA": "7.62 ± 0.93",
        "NCDSSM": "5.69 ± 0.01",
        "SDE matching": "5.20 ± 0.43",
        "Latent NSF": "8.62 ± 0.32",
    },
    2: {
        "Latent ODE": "31.62 ± 0.05",
        "Latent SDE": "9.52 ± 0.21",
        "Latent Approx SDE": "10.50 ± 0.86",
        "ARCTA": "9.92 ± 1.82",
        "NCDSSM": "4.74 ± 0.01",
        "SDE matching": "4.26 ± 0.35",
        "Latent NSF": "3.41 ± 0.27",
    },
}

# F.2, set-up 2: test MSE as printed (± is a 95 % interval), by the weight of the flow loss (K = 3), by its direction
# (λ = 1, K = 3) and by the inner steps of the bridge (λ = 1; 0 is the bridge trained along with the flow).
MOCAP_BY_WEIGHT = {
    0.001: "4.08 ± 0.46",
    0.003: "3.77 ± 0.37",
    0.01: "3.73 ± 0.48",
    0.03: "3.36 ± 0.25",
    0.1: "3.43 ± 0.29",
    0.3: "3.60 ± 0.33",
    1.0: "3.41 ± 0.27",
}
MOCAP_BY_DIRECTION = {"1→2 only": "3.66 ± 0.50", "2→1 only": "3.48 ± 0.46"}
MOCAP_BY_BRIDGE_STEPS = {
    0: "3.59 ± 0.61",
    1: "3.35 ± 0.39",
    3: "3.41 ± 0.27",
    5: "3.68 ± 0.40",
    10: "3.59 ± 0.38",
}
