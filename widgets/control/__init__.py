"""What a person asks of a pool from a panel, in cells and on the dashboard alike.

An *order* (``orders``) says what to do. The *desk* (``desk``) carries orders out on threads, one at
a time per replica, and is shared by all who manage the same pool from this process. A *clerk*
(``clerk``) hears one browser and answers it. A *panel* (``panel``) is what is seen of it all.
"""
