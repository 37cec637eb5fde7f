"""A circuit on the toy task with coordinates of every kind, in two layers of two heads."""

RICH: dict[str, float] = {
    "L0H0/score/q:res/k:res/offset+1": 3.0,
    "L0H0/score/q:const/k:res/verb": 1.5,
    "L0H1/score/q:res/k:res/noun>verb": 2.0,
    "L0H1/score/q:res/k:res/assoc-reverse": 2.5,
    "L1H0/score/q:res/k:L0H0/same": 4.0,
    "L1H0/score/q:L0H1/k:res/assoc": 3.0,
    "L1H0/score/q:L0H0/k:res/offset-1": -2.0,
    "L1H1/score/q:L0H0/k:L0H1/assoc-reverse": 3.5,
    "L1H1/score/q:const/k:L0H0/name": -1.2,
    "L1H1/score/q:res/k:res/offset+2": 1.7,
    "readout/via:L1H0/same": 3.0,
    "readout/via:res/assoc": 2.0,
    "readout/via:L0H0.L1H1/same": -2.4,
    "readout/via:L0H1/verb>name": 1.3,
    "readout/via:const/verb": 0.8,
}
