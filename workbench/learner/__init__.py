"""A small learner: group-relative policy gradients on one device.

* ``objective.py``, ``tree.py`` and ``rows.py`` decide what is computed, without a model;
* ``network.py`` holds the weights, ``storing.py`` puts them down;
* ``learner.py`` is what people use.
"""
